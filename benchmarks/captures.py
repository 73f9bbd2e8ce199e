"""Captures of graphs on CUDA that failed, after which launches are timed in place of a graph."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

EVENT = "not_captured"
"""The event that ``fullrank.networks.fused.cuda`` logs."""


def refused_in(run: Path) -> list[str]:
    """Return the events in the logs of a run."""
    logs = sorted((run / "logs").glob("*.log"))
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return [line[line.index(EVENT) :] for line in lines if EVENT in line]


class _Events(logging.Handler):
    """Keeps the events that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an event; no other record."""
        if record.getMessage().startswith(EVENT):
            self.found.append(record.getMessage())


@contextmanager
def refused_here() -> Iterator[list[str]]:
    """Collect the events of this process within the block."""
    logger, events = logging.getLogger("fullrank.networks.fused.cuda"), _Events()
    logger.addHandler(events)
    try:
        yield events.found
    finally:
        logger.removeHandler(events)


def failed(refused: Sequence[str]) -> dict[str, str]:
    """Return the entry of a row that names the first event; of none, no entry."""
    return {"failed": refused[0].splitlines()[0][:200]} if refused else {}
