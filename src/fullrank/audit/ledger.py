"""The ledger: learners' reports of the last iterations, including late reports.

A report is a digest of the update that a learner computed for a unit, or its linear hash if targets
are sums; it is sent even if the learner's vector is not needed. Once two learners have reported a
unit, a wrong computation appears as a dispute, which ``audit.proof`` settles by recomputing the
unit. An iteration is audited once two learners have sent equal reports of each of its units.

Draws of audits are keyed by a secret of the controller: a learner that knew which units are
computed again would be honest in those. The key lies in the run directory, so that a controller
that is killed and resumed makes the same draws.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fullrank.codes import support
from fullrank.common.types import LearnerId, Matrix, UnitIndex

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class AuditDraws:
    """Uniform draws under a key; equal keys make equal draws.

    Args:
        key: The secret.

    >>> draws = AuditDraws(bytes(32))
    >>> sum(draws.audits(iteration, every=10) for iteration in range(1000))
    100
    """

    key: bytes = field(repr=False)

    def below(self, count: int, purpose: str, *indices: int) -> int:
        """A number in 0..count - 1; the bias is below 2^-100."""
        text = f"{purpose} {' '.join(map(str, indices))}".encode()
        drawn = hashlib.blake2b(text, key=self.key, digest_size=16).digest()
        return int.from_bytes(drawn, "big") * count >> 128

    def audits(self, iteration: int, *, every: int) -> bool:
        """True in one iteration of each window of ``every``."""
        window, place = divmod(iteration, every)
        return place == self.below(every, "audit", window)

    def spots(
        self, iteration: int, index: int, *, probability: float, purpose: str = "spot"
    ) -> bool:
        """True with a probability, independently for each purpose, iteration and index."""
        return self.below(2**64, purpose, iteration, index) < probability * 2**64


CONTROLLER: LearnerId = -1
"""Learner id of the controller, which occasionally computes a unit itself."""

WINDOW = 64
"""Number of iterations whose reports are kept; reports are late by far fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """Reports of a committed iteration that contradict its committed update or one another."""

    iteration: int
    units: tuple[UnitIndex, ...]
    reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]]
    """Reports of these units by each party."""

    @property
    def parties(self) -> frozenset[LearnerId]:
        """Return the learners that reported any of these units."""
        return frozenset(self.reports)


@dataclass(frozen=True, slots=True)
class Holders:
    """Holders of the rows of a committed iteration, added ones included."""

    epoch: int
    matrix: Matrix
    extra_rows: Mapping[int, UnitIndex]
    rows: Mapping[int, tuple[LearnerId, bytes]]
    """Index and lease of the holder of each row."""

    def held(self, learner: LearnerId, lease: bytes | None) -> set[UnitIndex]:
        """Units that the learner of an index held, if its lease was this one; None: any lease."""
        return {
            unit
            for row, (holder, its) in self.rows.items()
            if holder == learner and lease in (None, its)
            for unit in self.units(row)
        }

    def units(self, row: int) -> frozenset[UnitIndex]:
        """Units that a row combines."""
        extra = self.extra_rows.get(row)
        return frozenset(support(self.matrix[row]) if extra is None else (extra,))


@dataclass(slots=True)
class _Iteration:
    """An iteration's committed reports, empty unless exact, and the reports of each learner."""

    committed: tuple[bytes, ...]
    holders: Holders | None
    reports: dict[LearnerId, dict[UnitIndex, bytes]] = field(default_factory=dict)
    settled: set[UnitIndex] = field(default_factory=set)
    """Units whose update was computed again."""
    distinct: dict[UnitIndex, set[bytes]] = field(default_factory=dict)
    times: Counter[UnitIndex] = field(default_factory=Counter)
    """Learners that have reported each unit."""

    def add(self, learner: LearnerId, reports: Mapping[UnitIndex, bytes]) -> None:
        own = self.reports.setdefault(learner, {})
        self.times.update(reports.keys() - own.keys())
        for unit, report in reports.items():
            committed = {digest for digest in self.committed[unit : unit + 1] if digest}
            if own.get(unit, report) in {report, *committed}:  # a deviating report is never unsaid
                own[unit] = report
            self.distinct.setdefault(unit, committed).add(report)

    def disputed(self) -> tuple[UnitIndex, ...]:
        differing = {unit for unit, reports in self.distinct.items() if len(reports) > 1}
        return tuple(sorted(differing - self.settled))

    def computed_twice(self) -> bool:
        """Return whether at least two learners reported each unit, with any result."""
        return bool(self.committed) and all(
            self.times[unit] >= 2 for unit in range(len(self.committed))
        )


class Ledger:
    """The reports of the last ``WINDOW`` committed iterations."""

    def __init__(self) -> None:
        self._audited: list[int] = []
        self._iterations: dict[int, _Iteration] = {}
        self._suspect: set[int] = set()

    def commit(
        self,
        iteration: int,
        committed: Sequence[bytes],
        reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]],
        holders: Holders | None = None,
    ) -> None:
        """Open an iteration for comparison.

        Args:
            iteration: Number of the iteration.
            committed: Report of each unit that matches the committed update; empty if the iteration
                was not exact, in which case only the learners' reports are compared.
            reports: Reports received before the commit.
            holders: Holders of its rows, whose late reports are heard; none without them.
        """
        self._iterations[iteration] = _Iteration(tuple(committed), holders)
        self._iterations.pop(iteration - WINDOW, None)
        self._suspect.discard(iteration - WINDOW)
        for learner, digests in reports.items():
            self.report(iteration, learner, digests)

    def report(
        self, iteration: int, learner: LearnerId, reports: Mapping[UnitIndex, bytes]
    ) -> None:
        """Compare reports of a committed iteration; ignore reports of any other iteration."""
        kept = self._iterations.get(iteration)
        if kept is None:
            return
        kept.add(learner, reports)
        if kept.disputed():
            self._suspect.add(iteration)
        elif iteration not in self._audited and kept.computed_twice():
            self._audited.append(iteration)
            del self._audited[: -2 * WINDOW]

    def file(
        self,
        iteration: int,
        learner: LearnerId,
        reports: Mapping[UnitIndex, bytes],
        *,
        epoch: int,
        lease: bytes | None,
    ) -> bool:
        """Compare late reports, if the learner held every one of their units in that iteration.

        It may hold other ones now: a change of the epoch hides no report.

        Args:
            iteration: Number of the iteration.
            learner: Index of the learner.
            reports: Its reports.
            epoch: Epoch of which the reports are.
            lease: Lease of the learner that has the index now; None if there is none.

        Returns:
            Whether they were compared.
        """
        kept = self._iterations.get(iteration)
        if kept is None or kept.holders is None or kept.holders.epoch != epoch:
            return False
        held = reports.keys() <= kept.holders.held(learner, lease)
        if held:
            self.report(iteration, learner, reports)
        return held

    def audited_before(self, iteration: int) -> int | None:
        """Return the latest audited iteration before this one, if the ledger still holds it."""
        return max((audited for audited in self._audited if audited < iteration), default=None)

    def dispute(self) -> Dispute | None:
        """Return the oldest unsettled dispute; None if there is none."""
        if not self._suspect:
            return None
        iteration = min(self._suspect)
        kept = self._iterations[iteration]
        units = kept.disputed()
        reports = {
            learner: {unit: digests[unit] for unit in units if unit in digests}
            for learner, digests in kept.reports.items()
        }
        parties = {learner: digests for learner, digests in reports.items() if digests}
        return Dispute(iteration=iteration, units=units, reports=parties)

    def settle(self, iteration: int) -> None:
        """Mark the disputed units as settled: further reports open no dispute about them."""
        kept = self._iterations[iteration]
        kept.settled.update(kept.disputed())
        self._suspect.discard(iteration)

    def awaited(self, iteration: int) -> frozenset[LearnerId]:
        """Return the learners that have not yet reported all units they held."""
        kept = self._iterations.get(iteration)
        if kept is None or kept.holders is None:
            return frozenset()
        return frozenset(
            learner
            for row, (learner, _) in kept.holders.rows.items()
            if not kept.holders.units(row) <= kept.reports.get(learner, {}).keys()
        )
