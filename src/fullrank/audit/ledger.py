"""Who computed which bits: the digests of the last iterations, those that come late included.

A digest says what a learner computed, whether or not its vector was needed. As soon as two learners
have reported a unit, a wrong computation shows as a dispute; who is right, ``audit.proof`` says
by computing the unit again. An iteration all of whose units were computed twice alike is audited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fullrank.common.types import LearnerId, UnitIndex

CONTROLLER: LearnerId = -1
"""Stands among learners for the controller, which computes a unit itself now and then."""

WINDOW = 64
"""Iterations whose digests are kept: far more than a report can be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """Reports of a committed iteration that contradict it, or each other."""

    iteration: int
    units: tuple[UnitIndex, ...]
    reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]]
    """What each party reported for these units."""

    @property
    def parties(self) -> frozenset[LearnerId]:
        """Everybody who reported one of these units."""
        return frozenset(self.reports)


@dataclass(slots=True)
class _Committed:
    """An iteration's committed digests, empty if it was not exact, and the reports for it."""

    digests: tuple[bytes, ...]
    reports: dict[LearnerId, dict[UnitIndex, bytes]]
    settled: bool = False
    known: dict[UnitIndex, set[bytes]] = field(default_factory=dict)

    def note(self, learner: LearnerId, digests: Mapping[UnitIndex, bytes]) -> None:
        self.reports.setdefault(learner, {}).update(digests)
        for unit, digest in digests.items():
            self.known.setdefault(unit, {*self.digests[unit : unit + 1]}).add(digest)

    def disputed(self) -> tuple[UnitIndex, ...]:
        return tuple(sorted(unit for unit, found in self.known.items() if len(found) > 1))

    def computed_twice(self) -> bool:
        """Every unit by two, whatever they found."""
        counts = [0] * len(self.digests)
        for own in self.reports.values():
            for unit in own:
                if unit < len(counts):
                    counts[unit] += 1
        return bool(counts) and min(counts) >= 2


class Ledger:
    """The digests of the last ``WINDOW`` committed iterations."""

    def __init__(self) -> None:
        self._audited: list[int] = []
        self._kept: dict[int, _Committed] = {}
        self._suspect: set[int] = set()

    def commit(
        self,
        iteration: int,
        digests: Sequence[bytes],
        reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]],
    ) -> None:
        """Open an iteration for comparison.

        Args:
            iteration: Its number.
            digests: Of the committed units; none if it was not exact, and then only the learners'
                own reports are compared.
            reports: That had come before the commit.
        """
        self._kept[iteration] = _Committed(tuple(digests), {})
        self._kept.pop(iteration - WINDOW, None)
        self._suspect.discard(iteration - WINDOW)
        for learner, own in reports.items():
            self.report(iteration, learner, own)

    def report(
        self, iteration: int, learner: LearnerId, digests: Mapping[UnitIndex, bytes]
    ) -> None:
        """Compare what was computed for a committed iteration; others are passed over."""
        kept = self._kept.get(iteration)
        if kept is None:
            return
        kept.note(learner, digests)
        if kept.disputed():
            if not kept.settled:
                self._suspect.add(iteration)
        elif iteration not in self._audited and kept.computed_twice():
            self._audited.append(iteration)
            del self._audited[: -2 * WINDOW]

    def audited_before(self, iteration: int) -> int | None:
        """The newest audited iteration before this one, if it is still known."""
        return max((each for each in self._audited if each < iteration), default=None)

    def dispute(self) -> Dispute | None:
        """The oldest that is not settled."""
        if not self._suspect:
            return None
        iteration = min(self._suspect)
        kept = self._kept[iteration]
        units = kept.disputed()
        reports = {
            learner: {unit: own[unit] for unit in units if unit in own}
            for learner, own in kept.reports.items()
        }
        parties = {learner: own for learner, own in reports.items() if own}
        return Dispute(iteration=iteration, units=units, reports=parties)

    def settle(self, iteration: int) -> None:
        """Whatever is said about this iteration from now on changes nothing."""
        self._kept[iteration].settled = True
        self._suspect.discard(iteration)

    def awaited(
        self, iteration: int, holdings: Mapping[LearnerId, Sequence[UnitIndex]]
    ) -> frozenset[LearnerId]:
        """Learners that have not reported all they hold."""
        kept = self._kept.get(iteration)
        reports = kept.reports if kept is not None else {}
        return frozenset(
            learner
            for learner, units in holdings.items()
            if not set(units) <= reports.get(learner, {}).keys()
        )
