"""A run's policies as they are published, and what became of them: ``<run>/evaluations.jsonl``."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from fullrank.cli.policies import Trained
from fullrank.cli.sources import Source
from fullrank.errors import CheckpointUnusable, FullrankError, NotFound, ServiceLost
from fullrank.statistics import Interval
from fullrank.types import JSON

EVALUATIONS = "evaluations.jsonl"
"""One line for each evaluation: what ``fullrank eval --json`` prints."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""Between two looks for newer policies."""


def follow(source: Source, *, seen: int, patience_s: float) -> Iterator[Trained]:
    """Newer policies of a run as they come, to its last ones; those missed meanwhile are skipped.

    Args:
        source: The run.
        seen: Iteration of the policies seen last, -1 for none.
        patience_s: How long newer ones may take.

    Raises:
        ServiceLost: They took longer.
    """
    while seen < source.config.iterations - 1:
        found = _await(source, seen, patience_s)
        seen = found.iteration
        yield found


def _await(source: Source, seen: int, patience_s: float) -> Trained:
    def give_up(attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        reason = attempt.outcome.exception() or "is the run still going?"
        raise ServiceLost(
            f"{source.name} has published no policies after iteration {seen} for "
            f"{patience_s:g} s: {reason}"
        )

    patient = Retrying(
        retry=retry_if_result(lambda found: found is None)
        | retry_if_exception_type((CheckpointUnusable, NotFound, ServiceLost)),
        wait=wait_random_exponential(multiplier=SHORTEST_PAUSE_S, max=LONGEST_PAUSE_S),
        stop=stop_after_delay(patience_s),
        retry_error_callback=give_up,
    )
    found = patient(source.newer, seen)
    assert found is not None
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Returns of an iteration's policies, played greedily."""

    iteration: int
    returns: Interval
    """Of all agents."""
    sides: Mapping[str, Interval]


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
        return [_evaluated(json.loads(line)) for line in lines[:-1]]
    except (ValueError, KeyError, TypeError) as error:
        raise FullrankError(f"{path} is damaged ({error}); remove it") from error


def _evaluated(facts: JSON) -> Evaluated:
    trained = facts["trained"]
    sides = {side: Interval(**interval) for side, interval in trained.pop("sides").items()}
    return Evaluated(iteration=facts["iteration"], returns=Interval(**trained), sides=sides)
