"""Successive halving [Jamieson16]: of several candidates' runs the better half goes on, and so on.

The source spends as much before every rung, so that the first comes early, and drops the last but
one at the end. Here rungs are evenly spaced: learning curves cross late (ADR 94).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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


def rungs_of(candidates: int, *, iterations: int) -> tuple[int, ...]:
    """The iterations, evenly spaced, at which half of the candidates are dropped till one is left.

    Args:
        candidates: Number of candidates.
        iterations: Iterations of a whole run.
    """
    count = (candidates - 1).bit_length()
    return tuple(iterations * k // (count + 1) for k in range(1, count + 1))


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
        score: Mean return of a candidate at a rung.
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
