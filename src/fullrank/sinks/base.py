"""Kinds of sinks, and the sinks of a run."""

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from fullrank.common.registry import Registry
from fullrank.common.types import JSON
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import METRICS, IterationRecord
from fullrank.sinks.aside import Aside
from fullrank.sinks.jsonl import JsonLines
from fullrank.sinks.sink import Fanout, MetricsSink, Sink


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
        on: a rollback has withdrawn them.
        """


sinks: Registry[SinkKind] = Registry("metrics sink", "fullrank.sinks", interface=SinkKind)
register = sinks.register


def open_sinks(
    run_dir: Path, names: Iterable[str], *, first_iteration: int, config: JSON
) -> Fanout[IterationRecord]:
    """``metrics.jsonl`` and the named sinks.

    Raises:
        ConfigError: A name is unknown.
    """
    kinds = {name: sinks.build(name) for name in names}
    lines = JsonLines(run_dir / METRICS, first_iteration=first_iteration)
    return Fanout(
        [
            lines,
            *(
                Aside(
                    name,
                    partial(kind.open, run_dir, first_iteration=first_iteration, config=config),
                )
                for name, kind in kinds.items()
            ),
        ]
    )


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
    return Fanout(
        [
            Aside(
                name,
                partial(
                    kind.open_evaluations, run_dir, first_iteration=first_iteration, config=config
                ),
            )
            for name, kind in kinds.items()
            if isinstance(kind, EvaluationSinkKind)
        ]
    )
