"""Successive halving [Jamieson16]: of several candidates' runs the better half goes on, and so on.

The source spends as much before every rung, so that the first comes early, and drops the last but
one at the end. Here rungs are evenly spaced by default: learning curves cross late (ADR 94).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from fullrank.common.errors import ConfigError

FILE = "tune.json"
"""File of the directory of `fullrank tune`: its plan, evaluations and decisions."""
AVERAGED = 4
"""Number of evaluations, the last ones before a rung, whose mean return decides there."""

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung(Generic[T]):
    """The decision at a rung."""

    iteration: int
    """Iterations that each candidate has trained."""
    returns: Mapping[T, float]
    """Mean return of the last evaluations of each candidate."""
    kept: tuple[T, ...]
    dropped: tuple[T, ...]
    cost: float
    """Iterations of all candidates so far, in multiples of those of one whole run."""

    def whole_cost(self, iterations: int) -> float:
        """The cost once the one candidate that is left has trained to the end."""
        return (self.cost * iterations + iterations - self.iteration) / iterations


def rungs_of(candidates: int, *, iterations: int, given: Sequence[int] = ()) -> tuple[int, ...]:
    """The iterations at which half of the candidates are dropped, so that one is left.

    Args:
        candidates: Number of candidates.
        iterations: Iterations of a whole run.
        given: The rungs; none: as many as are needed, evenly spaced.

    Raises:
        ConfigError: There are too few candidates or iterations, or the rungs do not fit.
    """
    count = (candidates - 1).bit_length()
    if candidates < 2:
        raise ConfigError(f"{candidates} value leaves no choice: give several, such as 0.1,0.2")
    rungs = tuple(given) or tuple(iterations * k // (count + 1) for k in range(1, count + 1))
    bounds = (0, *rungs, iterations)
    if any(low >= high for low, high in pairwise(bounds)):
        raise ConfigError(
            f"rungs {rungs} must ascend between 0 and the end, iteration {iterations}: change "
            "--rungs or --iterations"
        )
    if len(rungs) != count:
        raise ConfigError(
            f"{len(rungs)} rungs do not leave one of {candidates} values: give {count}, or no "
            "--rungs"
        )
    return rungs


def averaged(rung: int, *, every: int) -> list[int]:
    """Iterations of the evaluations that decide at a rung; the rung's own if none is before it."""
    return list(range(every, rung + 1, every))[-AVERAGED:] or [rung]


def halve(
    candidates: Sequence[T],
    rungs: Sequence[int],
    *,
    iterations: int,
    score: Callable[[T, int], float],
) -> Iterator[Rung[T]]:
    """Keep the better half of the candidates, rounded up, at each rung; of equals the first.

    Args:
        candidates: The candidates.
        rungs: Iterations of the rungs, ascending.
        iterations: Iterations of a whole run.
        score: Mean return of a candidate at a rung; it may train the candidate up to there.
    """
    left, trained, spent = tuple(candidates), 0, 0
    for iteration in rungs:
        spent += len(left) * (iteration - trained)
        returns = {each: score(each, iteration) for each in left}
        best = sorted(left, key=lambda each: -returns[each])[: (len(left) + 1) // 2]
        dropped = tuple(each for each in left if each not in best)
        left, trained = tuple(each for each in left if each in best), iteration
        yield Rung(
            iteration=iteration,
            returns=returns,
            kept=left,
            dropped=dropped,
            cost=spent / iterations,
        )
