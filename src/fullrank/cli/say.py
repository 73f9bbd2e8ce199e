"""Plain lines on the standard streams and in the log of a process.

Tables and live views are printed by ``fullrank.cli.terminal``.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from fullrank import __version__
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


def start_log(handler: logging.Handler, *, form: str = FORMAT) -> None:
    """Send the log of this process to a handler."""
    handler.setFormatter(_PlainFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
