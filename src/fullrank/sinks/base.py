"""What a kind of sink is, and the sinks of a run."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from fullrank.common.registry import Registry
from fullrank.common.types import JSON
from fullrank.runs.evaluations import Evaluated
from fullrank.runs.record import METRICS, Fanout, IterationRecord, JsonLines, MetricsSink, Sink
from fullrank.sinks.aside import Aside


class SinkKind(Protocol):
    """Opens sinks of one kind."""

    def open(self, run_dir: Path, *, first_iteration: int, config: JSON) -> MetricsSink:
        """A sink for a run; it is called, written and closed on one thread of its own.

        Args:
            run_dir: The run's directory.
            first_iteration: Where the run starts or resumes; later steps will be written again.
            config: The resolved configuration.

        Raises:
            Exception: It cannot be; the run goes on without it.
        """


@runtime_checkable
class EvaluationSinkKind(Protocol):
    """A kind that takes evaluations, too; other kinds do without them."""

    def open_evaluations(
        self, run_dir: Path, *, first_iteration: int, config: JSON
    ) -> Sink[Evaluated]:
        """As ``SinkKind.open``, in another process, while the run writes to its own sink.

        An evaluation of an iteration that is not later than the one before supersedes those from
        there on: a rollback took them back.
        """


sinks: Registry[SinkKind] = Registry("metrics sink", "fullrank.sinks")
register = sinks.register


def open_sinks(
    run_dir: Path, names: Iterable[str], *, first_iteration: int, config: JSON
) -> Fanout[IterationRecord]:
    """``metrics.jsonl``, and beside it the sinks that are named.

    Raises:
        ConfigError: There is no sink of such a name.
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
) -> Fanout[Evaluated]:
    """Those of the named sinks that take evaluations.

    Args:
        run_dir: The run's directory.
        names: Of sinks.
        first_iteration: What was evaluated from here on is superseded.
        config: The resolved configuration.

    Raises:
        ConfigError: There is no sink of such a name.
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
