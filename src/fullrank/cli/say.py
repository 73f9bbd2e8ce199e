"""Plain lines on the standard streams and in the log of a process.

Tables and live views are printed by ``fullrank.cli.terminal``.
"""

import atexit
import io
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from threading import Lock
from typing import Any, TextIO, cast

from fullrank import __version__
from fullrank.common.errors import ConfigError
from fullrank.common.place import PLACE
from fullrank.common.text import plain


def say(*lines: object, error: bool = False) -> None:
    """Print lines at once, each as ``plain`` text.

    Args:
        *lines: The lines, without newlines.
        error: True to print to standard error.
    """
    text = "\n".join(map(plain, lines))
    print(text, file=sys.stderr if error else sys.stdout, flush=True)


def say_json(facts: object) -> None:
    """Print facts as indented JSON, in which no character is left that a terminal obeys."""
    say(*json.dumps(facts, indent=2).split("\n"))


@contextmanager
def kept_stdout() -> Iterator[None]:
    """Send what others print meanwhile, such as an environment, to standard error."""
    with redirect_stdout(sys.stderr):
        yield


FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"

LOG_FORMAT = "FULLRANK_LOG_FORMAT"
"""Variable with the format of the log of services: ``text``, the default, or ``json``."""

log = logging.getLogger(__name__)


def starting(name: str) -> str:
    """The first line of a process, said before it imports gRPC and torch."""
    return f"fullrank {name} {__version__} starts (pid {os.getpid()})"


class _PlainFormatter(logging.Formatter):
    """Formats records as plain lines, since reasons and names come from other processes."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = plain(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(plain, super().formatException(ei).split("\n")))


class _JsonFormatter(logging.Formatter):
    """Formats each record of a service as one line of ASCII, an object in JSON.

    Args:
        service: The service.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service, self._host = service, socket.gethostname()

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        facts = {
            "timestamp": f"{second}.{int(record.created % 1 * 1e6):06d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "service": self._service,
            "instance": f"{self._host}/{record.process}",
            **PLACE,
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts)


class _Records(io.TextIOBase):
    """Standard error of which every line is a record of the log, whatever prints it."""

    def __init__(self) -> None:
        self._rest, self._lock = "", Lock()
        atexit.register(self.write, "\n")

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            log.error("%s", line)
        return len(text)

    def fileno(self) -> int:
        return 2


def start_log(handler: logging.Handler, *, form: str = FORMAT) -> None:
    """Send the log of this process to a handler."""
    handler.setFormatter(_PlainFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def start_service_log(service: str) -> None:
    """Send the log of a service to standard error, in the format that ``LOG_FORMAT`` names.

    In JSON all that Python prints there is a record. The lines of gRPC's core are left out, since
    services report what they mean.

    Raises:
        ConfigError: There is no such format.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    form = os.environ.get(LOG_FORMAT, "text")
    if form not in ("text", "json"):
        raise ConfigError(f"{LOG_FORMAT} = {form!r} in the environment: must be text or json")
    handler = logging.StreamHandler()
    start_log(handler)
    if form == "json":
        handler.setFormatter(_JsonFormatter(service))
        logging.raiseExceptions = False  # it would print, and so log, why it cannot log
        logging.captureWarnings(True)
        sys.stderr = cast(TextIO, _Records())
        sys.excepthook = lambda *error: log.critical("%s", error[1], exc_info=error)
