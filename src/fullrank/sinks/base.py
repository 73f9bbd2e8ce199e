"""Sinks: their interface, their kinds, and those of a run, several as one.

A sink runs on its own thread, where it may hang or fail without disturbing the run.
"""

import logging
import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from fullrank.common.registry import Registry
from fullrank.common.types import JSON
from fullrank.runs.evaluations import EvaluationRecord
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


log = logging.getLogger(__name__)

KEPT = 1024
"""Records queued for a slow sink; further ones are dropped."""
CLOSE_S = 10.0
"""Longest wait for a sink to take the queued records, seconds."""
PAUSE_S = 0.2
"""Time for which records gather once a sink has taken all: a change of threads costs an iteration
as much as a record."""


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
        self._closing = threading.Event()
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
        self._closing.set()
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
            with closing(self._open()) as sink:
                while record is not None:
                    sink.write(record)
                    if self._waiting.empty():
                        self._closing.wait(PAUSE_S)
                    record = self._waiting.get()
        except Exception as error:
            self._failed = True
            log.warning("metrics_sink_dropped sink=%s reason=%s", self._name, error)


class SinkKind(Protocol):
    """Opens sinks of one kind."""

    @abstractmethod
    def open(self, run_dir: Path, *, first_iteration: int, config: JSON) -> MetricsSink:
        """Open a sink for a run; the sink is opened, written and closed on its own thread.

        Args:
            run_dir: The run's directory.
            first_iteration: Where the run starts or resumes; later steps will be written again.
            config: The resolved configuration.

        Raises:
            Exception: The sink cannot be opened; the run goes on without it.
        """


@runtime_checkable
class EvaluationSinkKind(Protocol):
    """A kind whose sinks take evaluations as well."""

    def open_evaluations(
        self, run_dir: Path, *, first_iteration: int, config: JSON
    ) -> Sink[EvaluationRecord]:
        """Open a sink as ``SinkKind.open`` does, in another process than the run's own sink.

        An evaluation of an iteration not later than the previous one supersedes those from there
        on: they were condemned.
        """


sinks: Registry[SinkKind] = Registry("metrics sink", "fullrank.sinks", interface=SinkKind)
register = sinks.register


def open_sinks(
    run_dir: Path, names: Iterable[str], *, first_iteration: int, config: JSON
) -> Fanout[IterationRecord]:
    """The named sinks.

    Raises:
        ConfigError: A name is unknown.
    """
    kinds = {name: sinks.build(name) for name in names}
    opening = {name: kind.open for name, kind in kinds.items()}
    return Fanout(_aside(opening, run_dir, first_iteration=first_iteration, config=config))


def _aside(
    opening: Mapping[str, Callable[..., Sink[T]]], *args: Any, **facts: Any
) -> list[Aside[T]]:
    """Sinks by name, each on a thread of its own, where it is opened with these arguments."""
    return [Aside(name, partial(opened, *args, **facts)) for name, opened in opening.items()]


def open_evaluation_sinks(
    run_dir: Path, names: Iterable[str], *, first_iteration: int, config: JSON
) -> Fanout[EvaluationRecord]:
    """The named sinks that take evaluations.

    Args:
        run_dir: The run's directory.
        names: Registered names of sinks.
        first_iteration: Evaluations from this iteration on are superseded.
        config: The resolved configuration.

    Raises:
        ConfigError: A name is unknown.
    """
    kinds = {name: sinks.build(name) for name in names}
    opening = {
        name: kind.open_evaluations
        for name, kind in kinds.items()
        if isinstance(kind, EvaluationSinkKind)
    }
    return Fanout(_aside(opening, run_dir, first_iteration=first_iteration, config=config))
