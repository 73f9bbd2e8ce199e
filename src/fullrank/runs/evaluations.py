"""Evaluation records: greedy returns of a run's policies, in ``<run>/evaluations.jsonl``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fullrank.common.errors import FullrankError
from fullrank.common.types import JSON, Interval

EVALUATIONS = "evaluations.jsonl"
"""File of a run directory; each line is one evaluation, as ``fullrank eval --json`` prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """Returns of an iteration's policies, played greedily."""

    iteration: int
    term: int
    """Term in which the policies were saved; 0 if unknown."""
    returns: Interval
    """Return summed over all agents."""
    sides: Mapping[str, Interval]
    """Return of each side of the agents."""
    win_rate: Interval | None = None
    """Share of episodes won; None if the environment has no wins."""
    statistics: Mapping[str, float] = field(default_factory=dict)
    """Statistics of the episodes by PyMARL's names; empty for algorithms that have none."""

    def superseded(self, begun: Mapping[int, int]) -> bool:
        """True if a later term resumed at or before the iteration, and so replaced the policies.

        Args:
            begun: First iteration of each term.
        """
        return self.term > 0 and any(
            term > self.term and first <= self.iteration for term, first in begun.items()
        )


def append(directory: Path, facts: JSON) -> None:
    """Append an evaluation to the run's file.

    Raises:
        FullrankError: It cannot be written.
    """
    try:
        with (directory / EVALUATIONS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
    except OSError as error:
        raise FullrankError(f"cannot write {directory / EVALUATIONS}: {error.strerror}") from error


def read_evaluations(directory: Path) -> list[EvaluationRecord]:
    """The evaluations in the run's file, if there is one; a truncated last line is ignored.

    Raises:
        FullrankError: Another line is damaged.
    """
    path = directory / EVALUATIONS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    try:
        return [from_facts(json.loads(line)) for line in lines[:-1]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FullrankError(f"{path} is damaged ({error}); remove it") from error


def from_facts(facts: JSON) -> EvaluationRecord:
    """The record of a line.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: The line is no evaluation.
    """
    trained = dict(facts["trained"])
    sides = {side: _interval(interval) for side, interval in trained.pop("sides").items()}
    win_rate = trained.pop("win_rate", None)
    return EvaluationRecord(
        iteration=int(facts["iteration"]),
        term=int(facts.get("term", 0)),
        returns=_interval(trained),
        sides=sides,
        win_rate=None if win_rate is None else _interval(win_rate),
        statistics=dict(facts.get("statistics", {})),
    )


def _interval(facts: Mapping[str, float]) -> Interval:
    return Interval(**{name: float(value) for name, value in facts.items()})
