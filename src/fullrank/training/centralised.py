"""The targets of an iteration, computed in one process from every unit, without a code.

Units and targets stay on the device that computes them, if the gradients can leave units there: the
host gets digests, reports, and numbers that show whether the units are finite.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms import Gradients, Problem
from fullrank.codes.targets import target_sizes
from fullrank.common.rows import Rows
from fullrank.common.types import UnitIndex
from fullrank.common.updates import add_scaled
from fullrank.networks.cards.blake3 import row_digests
from fullrank.networks.cards.linear_hash import row_hashes
from fullrank.networks.fused.cuda import HostCopy, as_rows, stays_on
from fullrank.networks.fused.gradients import FusedGradients, StayingGradients
from fullrank.rounds.reports import hashing_of, reporter_of
from fullrank.rounds.verification import digests_of
from fullrank.training.soundness import sound_updates, unsound


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of an iteration, with the bits that decoding from any rows would commit."""

    updates: Rows
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
        self._rows, self._there = self._host_rows, None
        if isinstance(gradients, StayingGradients):
            self._rows = gradients.rows
            self._there = gradients.device if stays_on(gradients.device) else None
        self._together: FusedGradients | None = None
        if isinstance(gradients, FusedGradients) and self.mirrored is not None:
            self._together = gradients
        self._told = cache(self._new_told)
        self._report_of = reporter_of(problem, seed=seed)
        hashing = hashing_of(problem, seed=seed)
        self._weights: Tensor | None = None
        if self._there is not None and hashing is not None:
            self._weights = torch.from_numpy(hashing.weights.view(np.int64).copy()).to(self._there)
        target, sizes = problem.target, problem.unit_sizes
        self._sizes = sizes if target is None else target_sizes(target, sizes)

    @property
    def mirrored(self) -> torch.device | None:
        """Return the device on which minibatches are read; None if that is in host memory."""
        return self._there if self._problem.target is None else None

    def compute(
        self,
        batch: Rows,
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Targets:
        """Compute the targets.

        Args:
            batch: Packed transitions, shape (B, row_size); see ``mirrored``.
            iteration: Keys the draws.
            check_cancelled: Called between stages; raises ``Cancelled`` to abandon the work.

        Raises:
            Cancelled: ``check_cancelled`` raised it.
            Unsound: An update is not finite.
        """
        problem, target = self._problem, self._problem.target
        units = range(len(problem.units))
        targets = range(len(units) if target is None else len(target))
        sums, by_unit = self.sums(
            batch, units, targets=targets, iteration=iteration, check_cancelled=check_cancelled
        )
        updates = sums.to(torch.float32)
        digests = self.digests(updates, targets, batch, iteration=iteration)
        reports = digests if target is None else [by_unit[unit] for unit in units]
        return Targets(updates=as_rows(updates), digests=digests, reports=reports)

    def digests(
        self, updates: Tensor, targets: range, batch: Rows, *, iteration: int
    ) -> Sequence[bytes]:
        """Digest targets on their device, each over its own entries, and check those of ``sums``.

        Args:
            updates: The targets, shape (targets, P) float32.
            targets: Their numbers.
            batch: The minibatch that they were computed from.
            iteration: Number of the iteration.

        Raises:
            Unsound: An update is not finite.
        """
        sizes, whole = [self._sizes[target] for target in targets], self._problem.target is None
        if not stays_on(updates.device):
            if whole:
                self._check(updates, targets, batch, iteration)
            return digests_of(updates.numpy(), sizes, self._problem.statistics)
        if self._together is not None:
            told = self._told(targets)
            digests = HostCopy(told.digests)
            self._refuse(told.norms, updates, targets, batch, iteration)
        else:
            digests = HostCopy(self._digests(updates, sizes))
            if whole:
                self._check(updates, targets, batch, iteration)
        return tuple(map(bytes, digests.array()))

    def _digests(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        """Digest rows on their device, each over its own entries, shape (rows, digest bytes)."""
        found, first, statistics = list[Tensor](), 0, self._problem.statistics
        for size, alike in groupby(sizes):
            own, end = rows[first : first + len([*alike])], size - statistics
            parts = [row_digests(own, end)]
            if statistics:
                parts.append(row_digests(own[:, end:size].contiguous(), statistics))
            found.append(torch.cat(parts, dim=1))
            first += len(own)
        return torch.cat(found)

    def _new_told(self, units: range) -> "_Told":
        sizes = [self._sizes[unit] for unit in units]
        return _Told(partial(self._digests, sizes=sizes))

    def sums(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        targets: range,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Mapping[UnitIndex, bytes]]:
        """Compute the contribution of some units to some targets, exactly, so in any order.

        Returns:
            Shape (targets, P), on the device that computed the units: where targets are units,
            these in float32, unchecked and without reports; else sums in float64, and the report of
            each unit.

        Raises:
            Cancelled: ``check_cancelled`` raised it.
            Unsound: An update of a sum is not finite.
        """
        problem, reports = self._problem, dict[UnitIndex, bytes]()
        call: dict[str, Any] = {"iteration": iteration, "check_cancelled": check_cancelled}
        if self._together is not None:
            rows = self._together.together(batch, units, **call, then=self._told(targets))
            return rows.clone(), reports  # no later iteration overwrites them
        if problem.target is None:
            return self._side_by_side(batch, units, **call), reports
        target = problem.target[targets.start : targets.stop]
        if self._there is not None:
            rows = self._side_by_side(batch, units, **call)
            told = HostCopy(self._reports(rows, units))
            there = rows.new_zeros(len(targets), rows.shape[1], dtype=torch.float64)
            for row, unit in zip(rows, units, strict=True):
                for number in np.flatnonzero(target[:, unit]):
                    there[number].add_(row, alpha=float(target[number, unit]))
            self._check(rows, units, batch, iteration)
            return there, dict(zip(units, map(bytes, told.array()), strict=True))
        sums = np.zeros((len(targets), problem.vector_size))
        computed = self._gradients.compute(np.asarray(batch), units, **call)
        for unit, update in sound_updates(computed, problem, batch, iteration=iteration):
            reports[unit] = self._report_of(update)
            for number in np.flatnonzero(target[:, unit]):
                add_scaled(sums[number], target[number, unit], update)
        return torch.from_numpy(sums), reports

    def _side_by_side(self, batch: Rows, units: Sequence[UnitIndex], **call: Any) -> Tensor:
        """Compute units, and lay them side by side where they were, shape (units, P)."""
        rows, shape = torch.empty(0), (len(units), self._problem.vector_size)
        places = {unit: number for number, unit in enumerate(units)}
        for unit, row in self._rows(batch, units, **call):
            rows = rows if len(rows) else row.new_empty(shape)
            place = rows[places[unit]]
            place[: len(row)] = row
            place[len(row) :] = 0.0
        return rows

    def _reports(self, rows: Tensor, units: Sequence[UnitIndex]) -> Tensor:
        """Make the reports of units on their device, shape (units, bytes)."""
        parts = [self._digests(rows, [self._problem.unit_sizes[unit] for unit in units])]
        if self._weights is not None:
            parts.append(row_hashes(rows, self._weights).view(torch.uint8))
        return torch.cat(parts, dim=1)

    def _host_rows(
        self, batch: Rows, *words: Any, **named: Any
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Yield the updates of gradients that leave them in host memory."""
        for unit, update in self._gradients.compute(np.asarray(batch), *words, **named):
            yield unit, torch.from_numpy(update)

    def _check(self, rows: Tensor, units: Sequence[UnitIndex], batch: Rows, iteration: int) -> None:
        """Refuse units that are not finite; the norm of one that is may yet overflow."""
        self._refuse(torch.linalg.vector_norm(rows, dim=1), rows, units, batch, iteration)

    def _refuse(
        self,
        norms: Tensor,
        rows: Tensor,
        units: Sequence[UnitIndex],
        batch: Rows,
        iteration: int,
    ) -> None:
        for place in np.flatnonzero(~np.isfinite(HostCopy(norms).array())).tolist():
            update = HostCopy(rows[place]).array()
            if not np.isfinite(update).all():
                raise unsound(units[place], update, self._problem, batch, iteration=iteration)


class _Told:
    """What the host is told of units that stay on their device, computed in their graph.

    Args:
        digest: Digests rows on their device.

    Attributes:
        digests: Digest of each row, shape (rows, digest bytes).
        norms: L2 norm of each row, which is not finite where an entry is not, shape (rows,).
    """

    def __init__(self, digest: Callable[[Tensor], Tensor]) -> None:
        self._digest = digest
        self.digests = self.norms = torch.empty(0)

    def __call__(self, rows: Tensor) -> None:
        """Compute both, always into the same tensors."""
        digests, norms = self._digest(rows), torch.linalg.vector_norm(rows, dim=1)
        if not len(self.norms):
            self.digests, self.norms = torch.empty_like(digests), torch.empty_like(norms)
        self.digests.copy_(digests)
        self.norms.copy_(norms)
