"""What a kind of sink is, and the sinks of a run."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from fullrank.metrics import METRICS, Fanout, JsonLines, MetricsSink
from fullrank.registry import Registry
from fullrank.sinks.aside import Aside
from fullrank.types import JSON


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


sinks: Registry[SinkKind] = Registry("metrics sink", "fullrank.sinks")
register = sinks.register


def open_sinks(
    run_dir: Path, names: Iterable[str], *, first_iteration: int, config: JSON
) -> Fanout:
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
