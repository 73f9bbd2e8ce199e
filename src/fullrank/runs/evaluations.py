"""How a run's policies play from time to time, greedily: ``<run>/evaluations.jsonl``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fullrank.common.errors import FullrankError
from fullrank.common.types import JSON, Interval

EVALUATIONS = "evaluations.jsonl"
"""One line for each evaluation: what ``fullrank eval --json`` prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Returns of an iteration's policies, played greedily."""

    iteration: int
    term: int
    """In which they were saved; 0 where that is not known."""
    returns: Interval
    """Of all agents."""
    sides: Mapping[str, Interval]

    def superseded(self, begun: Mapping[int, int]) -> bool:
        """Whether a later term went on at or before the iteration: the run has other policies now.

        Args:
            begun: Each term's first iteration.
        """
        return self.term > 0 and any(
            term > self.term and first <= self.iteration for term, first in begun.items()
        )


def append(directory: Path, facts: JSON) -> None:
    """Add an evaluation to the run's file.

    Raises:
        FullrankError: It cannot be written.
    """
    try:
        with (directory / EVALUATIONS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
    except OSError as error:
        raise FullrankError(f"cannot write {directory / EVALUATIONS}: {error.strerror}") from error


def read_evaluations(directory: Path) -> list[Evaluated]:
    """Those in the run's file, if there is one; a last line that is cut short is left out.

    Raises:
        FullrankError: Another line is damaged.
    """
    path = directory / EVALUATIONS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    try:
        return [from_facts(json.loads(line)) for line in lines[:-1]]
    except (ValueError, KeyError, TypeError) as error:
        raise FullrankError(f"{path} is damaged ({error}); remove it") from error


def from_facts(facts: JSON) -> Evaluated:
    """What a line says.

    Raises:
        KeyError, TypeError: It says something else.
    """
    trained = dict(facts["trained"])
    sides = {side: Interval(**interval) for side, interval in trained.pop("sides").items()}
    return Evaluated(
        iteration=facts["iteration"],
        term=facts.get("term", 0),
        returns=Interval(**trained),
        sides=sides,
    )
