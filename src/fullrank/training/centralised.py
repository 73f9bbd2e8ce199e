"""The targets of an iteration, computed in one process from every unit, without a code."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fullrank.algorithms import Gradients, Problem
from fullrank.codes.targets import target_sizes
from fullrank.common.types import FloatArray
from fullrank.rounds.reports import reporter_of
from fullrank.rounds.verification import digests_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of an iteration, with the bits that decoding from any rows would commit."""

    updates: FloatArray
    """T U, shape (K, P) float32."""
    digests: tuple[bytes, ...]
    """Digest of each target."""
    reports: tuple[bytes, ...]
    """Report of each unit, as a learner makes it."""


class Centralised:
    """Computes every unit once and combines the units as the problem's target asks.

    Args:
        problem: Units and target; all holders of a unit compute the same bits.
        gradients: Computes the units.
        seed: The run's seed, the key of linear hashes.
    """

    def __init__(self, problem: Problem, gradients: Gradients, *, seed: int) -> None:
        self._problem, self._gradients = problem, gradients
        self._report_of = reporter_of(problem, seed=seed)

    def compute(
        self,
        batch: FloatArray,
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Targets:
        """Compute the targets.

        Args:
            batch: Packed transitions, shape (B, row_size) float32.
            iteration: Keys the draws.
            check_cancelled: Called between stages; raises ``Cancelled`` to abandon the work.

        Raises:
            Cancelled: ``check_cancelled`` raised it.
        """
        problem = self._problem
        units = range(len(problem.units))
        updates = np.zeros((len(units), problem.vector_size), np.float32)
        reports = [b""] * len(units)
        for unit, update in self._gradients.compute(
            batch, units, iteration=iteration, check_cancelled=check_cancelled
        ):
            updates[unit, : len(update)] = update
            reports[unit] = self._report_of(update)
        if problem.target is None:
            return Targets(updates=updates, digests=tuple(reports), reports=tuple(reports))
        sums = (problem.target @ updates.astype(np.float64) + 0.0).astype(np.float32)
        sizes = target_sizes(problem.target, problem.unit_sizes)
        return Targets(updates=sums, digests=digests_of(sums, sizes), reports=tuple(reports))
