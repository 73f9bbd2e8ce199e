"""The targets of an iteration, computed in one process from every unit, without a code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.algorithms import Gradients, Problem
from fullrank.codes.targets import target_sizes
from fullrank.common.types import FloatArray, Matrix, UnitIndex
from fullrank.common.updates import add_scaled
from fullrank.rounds.reports import reporter_of
from fullrank.rounds.verification import digests_of
from fullrank.training.soundness import sound_updates


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of an iteration, with the bits that decoding from any rows would commit."""

    updates: FloatArray
    """T U, shape (K, P) float32."""
    digests: Sequence[bytes]
    """Digest of each target."""
    reports: Sequence[bytes]
    """Report of each unit, as a learner makes it; where targets are units, their digests."""


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
            Unsound: An update is not finite.
        """
        problem = self._problem
        units, target = range(len(problem.units)), problem.target
        sums, by_unit = self.sums(
            batch,
            units,
            targets=range(len(units) if target is None else len(target)),
            iteration=iteration,
            check_cancelled=check_cancelled,
        )
        updates, sizes = sums.astype(np.float32, copy=False), problem.unit_sizes
        if target is not None:
            sizes = target_sizes(target, sizes)
        digests = digests_of(updates, sizes, problem.statistics)
        reports = digests if target is None else [by_unit[unit] for unit in units]
        return Targets(updates=updates, digests=digests, reports=reports)

    def sums(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        targets: range,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> tuple[FloatArray | Matrix, Mapping[UnitIndex, bytes]]:
        """Compute the contribution of some units to some targets, exactly, so in any order.

        Returns:
            Sums, shape (targets, P), float32 where targets are units and else float64; the report
            of each unit.
        """
        target, reports = self._problem.target, dict[UnitIndex, bytes]()
        kind = np.float32 if target is None else np.float64
        sums = np.zeros((len(targets), self._problem.vector_size), kind)
        computed = self._gradients.compute(
            batch, units, iteration=iteration, check_cancelled=check_cancelled
        )
        for unit, update in sound_updates(computed, self._problem, batch, iteration=iteration):
            if target is None:
                sums[unit - targets.start, : len(update)] = update
                continue
            reports[unit] = self._report_of(update)
            for row in np.flatnonzero(target[targets.start : targets.stop, unit]):
                add_scaled(sums[row], target[targets.start + row, unit], update)
        return sums, reports
