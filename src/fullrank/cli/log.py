"""The log of a process."""

import logging
import os
from typing import Any

from fullrank import __version__
from fullrank.common.text import plain

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
