"""Evaluation records: greedy returns of a run's policies, in ``<run>/evaluations.jsonl``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from fullrank.common.durable import writing
from fullrank.common.errors import Malformed
from fullrank.common.foreign import lines_of, parse_json
from fullrank.common.schema import BOUNDED, Name, Ordinal, validated
from fullrank.common.types import JSON, Interval
from fullrank.runs.events import whole_bytes

EVALUATIONS = "evaluations.jsonl"
"""File of a run directory; each line is one evaluation, as ``fullrank eval --json`` prints it."""
REFERENCES = ("random", "still", "good")
"""Reference policies that an evaluation may have beside ``trained``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """Returns of an iteration's policies, played greedily."""

    iteration: Ordinal
    term: Ordinal = 0
    """Term in which the policies were saved; 0 if unknown."""
    returns: Interval
    """Return summed over all agents."""
    sides: Annotated[Mapping[Name, Interval], Field(max_length=256)]
    """Return of each side of the agents."""
    win_rate: Interval | None = None
    """Share of episodes won; None if the environment has no wins."""
    statistics: Annotated[Mapping[Name, float], Field(max_length=256)] = field(default_factory=dict)
    """Statistics of the episodes by PyMARL's names; empty for algorithms that have none."""
    references: Annotated[Mapping[Name, "EvaluationRecord"], Field(max_length=16)] = field(
        default_factory=dict
    )
    """Evaluations of reference policies, by their names, from the same initial states."""

    __pydantic_config__: ClassVar[ConfigDict] = BOUNDED

    def superseded(self, begun: Mapping[int, int]) -> bool:
        """True if a later term resumed at or before the iteration, and so replaced the policies.

        Args:
            begun: First iteration of each term.
        """
        return self.term > 0 and any(
            term > self.term and first <= self.iteration for term, first in begun.items()
        )


_RECORD = TypeAdapter(EvaluationRecord)


def append(directory: Path, facts: JSON) -> None:
    """Append an evaluation to the run's file, in place of a truncated last line.

    Raises:
        FullrankError: It cannot be written.
    """
    path = directory / EVALUATIONS
    with writing(path), path.open("a", encoding="utf-8") as file:
        if (whole := whole_bytes(path)) < path.stat().st_size:
            file.truncate(whole)
        file.write(json.dumps(facts) + "\n")


def read_evaluations(directory: Path) -> list[EvaluationRecord]:
    """The evaluations in the run's file, if there is one; a truncated last line is ignored.

    Raises:
        Malformed: Another line is damaged.
    """
    path = directory / EVALUATIONS
    if not path.exists():
        return []
    try:
        return [from_facts(parse_json(line, origin="a line")) for line in lines_of(path)]
    except Malformed as error:
        raise Malformed(f"{path} is damaged ({error}); remove it") from error


def from_facts(facts: JSON) -> EvaluationRecord:
    """The record of a line.

    Raises:
        Malformed: The line is no evaluation.
    """
    if not isinstance(facts, dict) or not isinstance(facts.get("trained"), dict):
        raise Malformed("a line is no evaluation")
    named = {name: facts[name] for name in ("iteration", "term", "statistics") if name in facts}
    of_references = {
        name: _played(facts[name], iteration=facts.get("iteration"))
        for name in REFERENCES
        if isinstance(facts.get(name), dict)
    }
    fields = _played(facts["trained"], **named, references=of_references)
    return validated(_RECORD, fields, origin="the evaluation")


def _played(played: JSON, **further: object) -> JSON:
    """Fields of the record of a policy's episodes."""
    returns = dict(played)
    sides, win_rate = returns.pop("sides", None), returns.pop("win_rate", None)
    if isinstance(sides, dict):
        sides = {name: _bounded(interval) for name, interval in sides.items()}
    return {**further, "returns": _bounded(returns), "sides": sides, "win_rate": win_rate}


def _bounded(interval: object) -> object:
    """The interval of a single episode, which has no bounds, as its mean alone."""
    if not isinstance(interval, dict):
        return interval
    return {
        end: interval.get("mean") if value is None else value for end, value in interval.items()
    }
