"""The log of a process."""

import logging
from typing import Any

from fullrank.common.text import plain

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


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
