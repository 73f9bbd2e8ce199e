"""Sink that writes TensorBoard files to ``<run>/tensorboard``."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import scalars
from fullrank.sinks.base import register


@register("tensorboard")
@dataclass(frozen=True, slots=True)
class TensorBoard:
    """Event files, written with the ``tensorboard`` package alone."""

    def open(self, run_dir: Path, *, first_iteration: int, config: JSON) -> "Events":
        """Open an event file for this start of the run."""
        return Events(run_dir / "tensorboard", first_iteration=first_iteration)

    def open_evaluations(self, run_dir: Path, *, first_iteration: int, config: JSON) -> "Events":
        """Open an event file below the run's: TensorBoard draws both returns in one chart."""
        return Events(run_dir / "tensorboard" / "evaluations", first_iteration=first_iteration)


class Events:
    """A TensorBoard event file.

    Args:
        directory: Directory of the event file.
        first_iteration: Later steps of an earlier event file are hidden from here on.
        clock: Wall-clock time of an event, seconds since 1970.

    Raises:
        ConfigError: The package is not installed, as in the images of the services.
    """

    def __init__(
        self, directory: Path, *, first_iteration: int, clock: Callable[[], float] = time.time
    ) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise ConfigError(
                "TensorBoard is not installed: pip install tensorboard, or leave it out of "
                "metrics.sinks"
            ) from None

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._clock = clock
        self._writer = EventFileWriter(str(directory), flush_secs=5)
        self._start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._next = first_iteration
        self._add(first_iteration, session_log=self._start)

    def write(self, record: IterationRecord | EvaluationRecord) -> None:
        """Add the record's scalars; TensorBoard then hides earlier events of later iterations."""
        if record.iteration < self._next:
            self._add(record.iteration, session_log=self._start)
        self._next = record.iteration + 1
        values = [
            self._summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars(record).items()
        ]
        self._add(record.iteration, summary=self._summary(value=values))

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._event(wall_time=self._clock(), step=step, **content))

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
