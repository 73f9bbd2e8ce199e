"""The interface of a sink, and several sinks as one."""

import logging
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from fullrank.runs.record import IterationRecord

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Takes records of one kind, in order."""

    def write(self, record: T_contra) -> None:
        """Take one record."""

    def close(self) -> None:
        """Flush, and release the sink's resources."""


MetricsSink: TypeAlias = Sink[IterationRecord]


class Fanout(Generic[T]):
    """Several sinks as one; a sink that raises is dropped with one warning."""

    def __init__(self, sinks: Sequence[Sink[T]]) -> None:
        self._sinks = list(sinks)

    def write(self, record: T) -> None:
        """Pass the record to every sink that still works."""
        for sink in list(self._sinks):
            try:
                sink.write(record)
            except Exception:
                self._sinks.remove(sink)
                _warn_dropped(sink)

    def close(self) -> None:
        """Close every sink."""
        for sink in self._sinks:
            try:
                sink.close()
            except Exception:
                _warn_dropped(sink)
        self._sinks.clear()


def _warn_dropped(sink: Sink[Any]) -> None:
    logger.warning("metrics_sink_dropped sink=%s", type(sink).__name__, exc_info=True)
