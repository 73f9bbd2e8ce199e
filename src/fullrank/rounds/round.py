"""The synchronous round: receive coded vectors and judge whether the iteration may be committed.

One state machine under the drivers that carry updates, services and one process; virtual time is
held to it by a test (docs/adr/0003). It knows no network, no clock and no threads; the driver asks
``decide`` after each offer and acts on the verdict.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from fullrank.codes.base import Code
from fullrank.codes.decoding.rows import completing_units
from fullrank.common.types import EncodedVector, LearnerId, UnitIndex
from fullrank.rounds.contributions import Contributions, Offer
from fullrank.rounds.decision import Decision
from fullrank.rounds.reports import Reports


class Decoding(Protocol):
    """A strategy that turns received rows into updates."""

    def precompute(self, contributions: Contributions) -> None:
        """Do the part of ``decide`` that needs no further row."""

    def decide(self, contributions: Contributions) -> Decision:
        """Judge the contributions received so far."""


class Round:
    """One iteration's rows and reports.

    Args:
        iteration: Its number.
        code: C, shape (R, M), and its target.
        decoding: How received rows become updates.
        target_sizes: Entries of each target; coded vectors have length P, the largest. Empty where
            only ranks matter.
        statistics: Number of last entries of each target that hold statistics.
    """

    def __init__(
        self,
        iteration: int,
        code: Code,
        *,
        decoding: Decoding,
        target_sizes: Sequence[int] = (),
        statistics: int = 0,
    ) -> None:
        self.iteration = iteration
        self.received: list[LearnerId] = []
        """Learners of the rows J, each once, in order of arrival."""
        self._decoding = decoding
        self.contributions = Contributions(code, sizes=target_sizes, statistics=statistics)
        """Received rows; those of a learner that lied are dropped (``rounds.quorum``)."""

    def add(self, unit: UnitIndex) -> int:
        """Admit a further row, the unit alone; returns the row's number."""
        return self.contributions.admit(unit)

    def missing(
        self, awaited: Collection[int] = (), *, without: LearnerId | None = None
    ) -> list[UnitIndex]:
        """The fewest units that, each alone, complete the rows received and those awaited.

        Args:
            awaited: Rows that may still come.
            without: Learner whose rows do not count.
        """
        received = (row for row, sender in self.contributions.senders if sender != without)
        rows = self.contributions.matrix(sorted({*received, *awaited}))
        return completing_units(rows, target=self.contributions.code.target)

    def report(self, unit: UnitIndex, digest: bytes, *, learner: LearnerId) -> None:
        """Take the digest that a learner computed for a unit."""
        self.contributions.report(unit, digest, learner=learner)

    def offer(
        self,
        *,
        learner: LearnerId,
        row: int,
        coded: EncodedVector | None = None,
        batch_digest: bytes = b"",
        items: tuple[int, ...] = (),
    ) -> bool:
        """Take a row's coded vector; False if the row was received before.

        Args:
            learner: The sender; it has reported the digests of all units in the row.
            row: Row of C, or one that was added.
            coded: y, shape (P,); None where only ranks matter.
            batch_digest: Digest of the minibatch that the learner used; learners of equal items
                must agree.
            items: Items of the minibatch that the learner fetched; empty: all.

        Raises:
            InvalidContribution: Wrong length, a value that is not finite, or digests missing:
                without them neither this vector nor any beside it could be committed.
        """
        if row in self.contributions.offers:
            return False
        self.contributions.add(
            Offer(learner=learner, row=row, coded=coded, batch_digest=batch_digest, items=items)
        )
        if learner not in self.received:
            self.received.append(learner)
        return True

    @property
    def reports(self) -> Reports:
        """Every reported digest."""
        return self.contributions.reports

    @property
    def rows(self) -> frozenset[int]:
        """Return the indices of received rows."""
        return frozenset(self.contributions.offers)

    @property
    def rank(self) -> int:
        """The rank of C_J."""
        return self.contributions.decoder.rank

    @property
    def decodable(self) -> bool:
        """True once C_J spans the target."""
        return self.contributions.decoder.decodable

    @property
    def condition(self) -> float:
        """Two-norm condition number of C_J."""
        return self.contributions.decoder.condition

    def precompute(self) -> None:
        """Do the part of ``decide`` that needs no further row, while further rows are awaited."""
        self._decoding.precompute(self.contributions)

    def decide(self) -> Decision:
        """Decode if the rows span the target, and verify the result."""
        return self._decoding.decide(self.contributions)
