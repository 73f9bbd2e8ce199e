"""A sink on its own thread: it may hang or fail without disturbing the run."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic

from fullrank.sinks.sink import Sink, T

log = logging.getLogger(__name__)

KEPT = 1024
"""Records queued for a slow sink; further ones are dropped."""
CLOSE_S = 10.0
"""Longest wait for a sink to take the queued records, seconds."""


class Aside(Generic[T]):
    """Queue records for a sink that is opened, written and closed on another thread.

    It is opened with the first record: its packages may take long to import.

    Args:
        name: Name of the sink in the log.
        open_sink: Opens the sink.
    """

    def __init__(self, name: str, open_sink: Callable[[], Sink[T]]) -> None:
        self._name, self._open = name, open_sink
        self._waiting: queue.Queue[T | None] = queue.Queue(KEPT)
        self._lost = 0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def write(self, record: T) -> None:
        """Queue a record without waiting; a full queue drops it and counts the loss."""
        if self._failed:
            return
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            if not self._lost:
                log.warning("metrics_sink_slow sink=%s: records are dropped", self._name)
            self._lost += 1

    def close(self) -> None:
        """Give the sink ``CLOSE_S`` to take the queued records, then abandon it."""
        try:
            self._waiting.put(None, timeout=CLOSE_S)
            self._thread.join(CLOSE_S)
        except queue.Full:
            pass
        if self._lost:
            log.warning("metrics_sink_slow sink=%s lost=%d", self._name, self._lost)
        if self._thread.is_alive():
            log.warning("metrics_sink_abandoned sink=%s: it did not close in time", self._name)

    def _run(self) -> None:
        try:
            record = self._waiting.get()
            if record is None:
                return
            sink = self._open()
            try:
                while record is not None:
                    sink.write(record)
                    record = self._waiting.get()
            finally:
                sink.close()
        except Exception as error:
            self._failed = True
            log.warning("metrics_sink_dropped sink=%s reason=%s", self._name, error)
