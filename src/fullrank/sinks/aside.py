"""A sink on a thread of its own: it may hang or fail, and the run does not notice."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic

from fullrank.runs.record import Sink, T

log = logging.getLogger(__name__)

KEPT = 1024
"""Records that wait for a slow sink; further ones are left out."""
CLOSE_S = 10.0
"""Longest wait for a sink to take what waits."""


class Aside(Generic[T]):
    """Passes records on to a sink that is opened, written and closed elsewhere.

    Args:
        name: For the log.
        open_sink: Opens it.
    """

    def __init__(self, name: str, open_sink: Callable[[], Sink[T]]) -> None:
        self._name, self._open = name, open_sink
        self._waiting: queue.Queue[T | None] = queue.Queue(KEPT)
        self._lost = 0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def write(self, record: T) -> None:
        """Take a record at once; too many of them are left out and counted."""
        if self._failed:
            return
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            if not self._lost:
                log.warning("metrics_sink_slow sink=%s: it loses records", self._name)
            self._lost += 1

    def close(self) -> None:
        """Wait a while for the sink to take what waits, then leave it behind."""
        try:
            self._waiting.put(None, timeout=CLOSE_S)
            self._thread.join(CLOSE_S)
        except queue.Full:
            pass
        if self._lost:
            log.warning("metrics_sink_slow sink=%s lost=%d", self._name, self._lost)
        if self._thread.is_alive():
            log.warning("metrics_sink_left sink=%s: it did not close", self._name)

    def _run(self) -> None:
        try:
            sink = self._open()
            try:
                while (record := self._waiting.get()) is not None:
                    sink.write(record)
            finally:
                sink.close()
        except Exception as error:
            self._failed = True
            log.warning("metrics_sink_dropped sink=%s reason=%s", self._name, error)
