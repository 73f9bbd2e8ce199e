"""The ledger: which learner computed which bits in the last iterations, late reports included.

A report says what a learner computed for a unit, whether or not its vector was needed: the unit's
digest, and where targets are sums its linear hash. As soon as two learners have reported a unit, a
wrong computation shows as a dispute; ``audit.proof`` settles it by computing the unit again. An
iteration is audited once two learners have reported each of its units alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fullrank.common.types import LearnerId, UnitIndex

CONTROLLER: LearnerId = -1
"""The controller among the learners: it computes a unit itself now and then."""

WINDOW = 64
"""Iterations whose reports are kept: far more than a report can be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """Reports of a committed iteration that contradict it, or each other."""

    iteration: int
    units: tuple[UnitIndex, ...]
    reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]]
    """Each party's reports of these units."""

    @property
    def parties(self) -> frozenset[LearnerId]:
        """The learners that reported one of these units."""
        return frozenset(self.reports)


@dataclass(slots=True)
class _Iteration:
    """An iteration's committed reports, empty if it was not exact, and those of each learner."""

    committed: tuple[bytes, ...]
    reports: dict[LearnerId, dict[UnitIndex, bytes]]
    settled: bool = False
    distinct: dict[UnitIndex, set[bytes]] = field(default_factory=dict)

    def add(self, learner: LearnerId, reports: Mapping[UnitIndex, bytes]) -> None:
        self.reports.setdefault(learner, {}).update(reports)
        for unit, report in reports.items():
            committed = {each for each in self.committed[unit : unit + 1] if each}
            self.distinct.setdefault(unit, committed).add(report)

    def disputed(self) -> tuple[UnitIndex, ...]:
        return tuple(sorted(unit for unit, reports in self.distinct.items() if len(reports) > 1))

    def computed_twice(self) -> bool:
        """Whether two learners reported each unit, with whatever result."""
        counts = [0] * len(self.committed)
        for reports in self.reports.values():
            for unit in reports:
                if unit < len(counts):
                    counts[unit] += 1
        return bool(counts) and min(counts) >= 2


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
    ) -> None:
        """Open an iteration for comparison.

        Args:
            iteration: Its number.
            committed: The report of each unit that the committed update agrees with; none if it was
                not exact, and then only the learners' reports are compared.
            reports: Those received before the commit.
        """
        self._iterations[iteration] = _Iteration(tuple(committed), {})
        self._iterations.pop(iteration - WINDOW, None)
        self._suspect.discard(iteration - WINDOW)
        for learner, own in reports.items():
            self.report(iteration, learner, own)

    def report(
        self, iteration: int, learner: LearnerId, reports: Mapping[UnitIndex, bytes]
    ) -> None:
        """Compare reports of a committed iteration; ignore those of any other."""
        kept = self._iterations.get(iteration)
        if kept is None:
            return
        kept.add(learner, reports)
        if kept.disputed():
            if not kept.settled:
                self._suspect.add(iteration)
        elif iteration not in self._audited and kept.computed_twice():
            self._audited.append(iteration)
            del self._audited[: -2 * WINDOW]

    def audited_before(self, iteration: int) -> int | None:
        """The newest audited iteration before this one, if the ledger still holds it."""
        return max((audited for audited in self._audited if audited < iteration), default=None)

    def dispute(self) -> Dispute | None:
        """The oldest dispute that is not settled."""
        if not self._suspect:
            return None
        iteration = min(self._suspect)
        kept = self._iterations[iteration]
        units = kept.disputed()
        reports = {
            learner: {unit: own[unit] for unit in units if unit in own}
            for learner, own in kept.reports.items()
        }
        parties = {learner: own for learner, own in reports.items() if own}
        return Dispute(iteration=iteration, units=units, reports=parties)

    def settle(self, iteration: int) -> None:
        """Let no further report about this iteration open a dispute."""
        self._iterations[iteration].settled = True
        self._suspect.discard(iteration)

    def awaited(
        self, iteration: int, holdings: Mapping[LearnerId, Sequence[UnitIndex]]
    ) -> frozenset[LearnerId]:
        """Learners that have not reported all the units they hold."""
        kept = self._iterations.get(iteration)
        reports = kept.reports if kept is not None else {}
        return frozenset(
            learner
            for learner, units in holdings.items()
            if not set(units) <= reports.get(learner, {}).keys()
        )
