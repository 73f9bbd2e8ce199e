"""The targets of an iteration, computed in one process from every unit, without a code.

Units and targets stay on the device that computes them, if the gradients can leave units there: the
host gets digests, reports, and numbers that show whether the units are finite.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias

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
from fullrank.networks.fused.cuda import Graphs, HostCopy, as_rows, nothing_drawn, stays_on
from fullrank.networks.fused.gradients import FusedGradients, StayingGradients
from fullrank.rounds.reports import hashing_of, reporter_of
from fullrank.rounds.verification import digests_of
from fullrank.training.soundness import sound_updates, unsound

UnitReports: TypeAlias = Mapping[UnitIndex, bytes]
"""Report of each unit, as a learner makes it."""


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
        self._problem = problem
        self._units: _Units
        if isinstance(gradients, StayingGradients) and stays_on(gradients.device):
            self._units = _There(problem, gradients, seed=seed)
        else:
            self._units = _Here(problem, gradients, seed=seed)

    @property
    def mirrored(self) -> torch.device | None:
        """Return the device on which minibatches are read; None if that is in host memory."""
        return self._units.device if self._problem.target is None else None

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
        updates, digests = self.rounded(sums, targets, batch, iteration=iteration)
        reports = digests if target is None else [by_unit[unit] for unit in units]
        return Targets(updates=updates, digests=digests, reports=reports)

    def sums(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        targets: range,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, UnitReports]:
        """Compute the contribution of some units to some targets, exactly, so in any order.

        Returns:
            Shape (targets, P), on the device that computed the units, where the next call
            overwrites it: where targets are units, these in float32, unchecked and without reports;
            else sums in float64, and the report of each unit.

        Raises:
            Cancelled: ``check_cancelled`` raised it.
            Unsound: An update of a sum is not finite.
        """
        call: dict[str, Any] = {"iteration": iteration, "check_cancelled": check_cancelled}
        return self._units.sums(batch, tuple(units), targets, **call)

    def rounded(
        self, sums: Tensor, targets: range, batch: Rows, *, iteration: int
    ) -> tuple[Rows, Sequence[bytes]]:
        """Round what ``sums`` returned, digest each target over its own entries, and check these.

        Args:
            sums: As returned for the targets; others may have added to it in place.
            targets: Numbers of the targets.
            batch: The minibatch that they were computed from.
            iteration: Number of the iteration.

        Returns:
            The targets, shape (targets, P) float32, which no later call overwrites, and a digest of
            each.

        Raises:
            Unsound: An update is not finite.
        """
        return self._units.rounded(sums, targets, batch, iteration)


class _Units(ABC):
    """Units and targets where they are computed; see ``Centralised``.

    Attributes:
        device: The device on which they stay; None: they are in host memory.
    """

    device: torch.device | None = None

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        target, sizes = problem.target, problem.unit_sizes
        self._sizes = sizes if target is None else target_sizes(target, sizes)

    @abstractmethod
    def sums(
        self, batch: Rows, units: tuple[UnitIndex, ...], targets: range, **call: Any
    ) -> tuple[Tensor, UnitReports]:
        """Compute contributions to targets; see ``Centralised.sums``."""

    @abstractmethod
    def rounded(
        self, sums: Tensor, targets: range, batch: Rows, iteration: int
    ) -> tuple[Rows, Sequence[bytes]]:
        """Round, digest and check targets; see ``Centralised.rounded``."""

    def _refuse(
        self, norms: Tensor, rows: Tensor, units: Sequence[UnitIndex], batch: Rows, iteration: int
    ) -> None:
        """Refuse units that are not finite; the norm of one that is may yet overflow."""
        for place in np.flatnonzero(~np.isfinite(HostCopy(norms).array())).tolist():
            update = HostCopy(rows[place]).array()
            if not np.isfinite(update).all():
                raise unsound(units[place], update, self._problem, batch, iteration=iteration)


class _Here(_Units):
    """Units in host memory."""

    def __init__(self, problem: Problem, gradients: Gradients, *, seed: int) -> None:
        super().__init__(problem)
        self._gradients, self._report_of = gradients, reporter_of(problem, seed=seed)

    def sums(
        self, batch: Rows, units: tuple[UnitIndex, ...], targets: range, **call: Any
    ) -> tuple[Tensor, UnitReports]:
        problem, reports = self._problem, dict[UnitIndex, bytes]()
        if problem.target is None:
            rows = torch.empty(len(units), problem.vector_size)
            return _side_by_side(self._rows(batch, units, **call), units, rows), reports
        target = problem.target[targets.start : targets.stop]
        sums = np.zeros((len(targets), problem.vector_size))
        computed = self._gradients.compute(np.asarray(batch), units, **call)
        for unit, update in sound_updates(computed, problem, batch, iteration=call["iteration"]):
            reports[unit] = self._report_of(update)
            for number in np.flatnonzero(target[:, unit]):
                add_scaled(sums[number], target[number, unit], update)
        return torch.from_numpy(sums), reports

    def _rows(
        self, batch: Rows, units: tuple[UnitIndex, ...], **call: Any
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        if isinstance(self._gradients, StayingGradients):
            return self._gradients.rows(batch, units, **call)
        computed = self._gradients.compute(np.asarray(batch), units, **call)
        return ((unit, torch.from_numpy(update)) for unit, update in computed)

    def rounded(
        self, sums: Tensor, targets: range, batch: Rows, iteration: int
    ) -> tuple[Rows, Sequence[bytes]]:
        updates = sums.to(torch.float32)
        if self._problem.target is None:
            norms = torch.linalg.vector_norm(updates, dim=1)
            self._refuse(norms, updates, targets, batch, iteration)
        sizes = [self._sizes[target] for target in targets]
        return as_rows(updates), digests_of(updates.numpy(), sizes, self._problem.statistics)


class _There(_Units):
    """Units that stay on a device, on CUDA with what is computed of them as graphs."""

    def __init__(self, problem: Problem, gradients: StayingGradients, *, seed: int) -> None:
        super().__init__(problem)
        self.device, self._gradients = gradients.device, gradients
        self._together: FusedGradients | None = None
        if isinstance(gradients, FusedGradients) and problem.target is None:
            self._together = gradients
        self._graphs = Graphs(gradients.device)
        self._laid, self._told = cache(self._new_laid), cache(self._new_told)
        self._rounds = cache(self._new_rounds)
        hashing = hashing_of(problem, seed=seed)
        self._weights: Tensor | None = None
        if hashing is not None:
            self._weights = torch.from_numpy(hashing.weights.view(np.int64).copy()).to(self.device)

    def sums(
        self, batch: Rows, units: tuple[UnitIndex, ...], targets: range, **call: Any
    ) -> tuple[Tensor, UnitReports]:
        told, whole = self._told(units, targets), self._problem.target is None
        if self._together is not None:
            return self._together.together(batch, units, **call, then=told), {}
        rows = _side_by_side(self._gradients.rows(batch, units, **call), units, self._laid(units))
        self._run(told, rows)
        if whole:
            return rows, {}
        reports, norms, sums = told.results
        arrived = HostCopy(reports)
        self._refuse(norms, rows, units, batch, call["iteration"])
        return sums, dict(zip(units, map(bytes, arrived.array()), strict=True))

    def rounded(
        self, sums: Tensor, targets: range, batch: Rows, iteration: int
    ) -> tuple[Rows, Sequence[bytes]]:
        if self._problem.target is None:
            updates = sums.clone()
            digests, norms = self._told(tuple(targets), targets).results
            arrived = HostCopy(digests)
            self._refuse(norms, updates, targets, batch, iteration)
        else:
            rounds = self._rounds(targets, sums)
            self._run(rounds, sums)
            kept, digests = rounds.results
            updates, arrived = kept.clone(), HostCopy(digests)
        return as_rows(updates), tuple(map(bytes, arrived.array()))

    def _run(self, computation: "_Kept", given: Tensor) -> None:
        """Compute from a tensor that always lies in the same place."""
        self._graphs.run(
            computation,
            lambda draw, check_cancelled: computation(given),
            draw=nothing_drawn,
            check_cancelled=lambda: None,
        )

    def _new_laid(self, units: tuple[UnitIndex, ...]) -> Tensor:
        return torch.zeros(len(units), self._problem.vector_size, device=self.device)

    def _new_told(self, units: tuple[UnitIndex, ...], targets: range) -> "_Kept":
        """Return what computes reports and norms of units and, unless these are targets, sums."""
        target, sizes = self._problem.target, [self._problem.unit_sizes[unit] for unit in units]

        def tell(rows: Tensor) -> Sequence[Tensor]:
            norms = torch.linalg.vector_norm(rows, dim=1)
            reports = self._digests(rows, sizes)
            if target is None:
                return reports, norms
            if self._weights is not None:
                words = [row_hashes(row[None], self._weights) for row in rows]  # in less memory
                reports = torch.cat([reports, torch.cat(words).view(torch.uint8)], dim=1)
            sums = rows.new_zeros(len(targets), rows.shape[1], dtype=torch.float64)
            for row, unit in zip(rows, units, strict=True):
                for number, weight in enumerate(target[targets.start : targets.stop, unit]):
                    if weight:
                        sums[number].add_(row, alpha=float(weight))
            return reports, norms, sums

        return _Kept(tell)

    def _new_rounds(self, targets: range, sums: Tensor) -> "_Kept":
        """Return what rounds sums, which lie where they always do, and digests the targets."""
        sizes = [self._sizes[target] for target in targets]

        def rounds(sums: Tensor) -> Sequence[Tensor]:
            updates = sums.to(torch.float32)
            return updates, self._digests(updates, sizes)

        return _Kept(rounds)

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


class _Kept:
    """A computation whose results always lie in the same tensors, as a graph needs them.

    Args:
        compute: The computation.

    Attributes:
        results: What it computed last.
    """

    def __init__(self, compute: Callable[[Tensor], Sequence[Tensor]]) -> None:
        self._compute = compute
        self.results: Sequence[Tensor] = ()

    def __call__(self, given: Tensor) -> None:
        """Compute."""
        found = self._compute(given)
        self.results = self.results or [torch.empty_like(own) for own in found]
        for kept, own in zip(self.results, found, strict=True):
            kept.copy_(own)


def _side_by_side(
    computed: Iterator[tuple[UnitIndex, Tensor]], units: Sequence[UnitIndex], rows: Tensor
) -> Tensor:
    """Copy units into their rows, shape (units, P), which end with zeros; returns the rows."""
    places = {unit: number for number, unit in enumerate(units)}
    for unit, own in computed:
        place = rows[places[unit]]
        place[: len(own)] = own
        place[len(own) :] = 0.0
    return rows
