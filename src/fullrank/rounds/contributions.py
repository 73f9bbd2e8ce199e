"""Contributions to one iteration: coded vectors by row, digests by learner."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code
from fullrank.codes.decoding.decoder import Decoder
from fullrank.codes.decoding.rows import SingleUnitRows
from fullrank.common.errors import InvalidContribution
from fullrank.common.linear_hash import HASH_BYTES
from fullrank.common.types import EncodedVector, LearnerId, Matrix, UnitIndex, Vector
from fullrank.common.updates import digest_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A received row."""

    learner: LearnerId
    row: int
    coded: EncodedVector | None
    batch_digest: bytes
    items: tuple[int, ...] = ()
    """Items of the minibatch that the learner fetched; empty: all."""


class Contributions:
    """Offers and reports, and the decoder that they feed.

    Args:
        code: C and its target.
        sizes: Entries of each target; coded vectors have length P, the largest.
        statistics: Number of last entries of each target that hold statistics.
        added: Units that further rows, beyond those of C, consist of.
    """

    def __init__(
        self,
        code: Code,
        *,
        sizes: Sequence[int],
        statistics: int = 0,
        added: list[UnitIndex] | None = None,
    ) -> None:
        self.code, self.sizes, self.statistics = code, tuple(sizes), statistics
        self.length = max(sizes, default=0)
        self.offers: dict[int, Offer] = {}
        self.reports: dict[LearnerId, dict[UnitIndex, bytes]] = {}
        self.decoder = Decoder(code)
        self.single_units = SingleUnitRows(
            self.sizes if code.recovers_units else (), statistics=statistics
        )
        self._added: list[UnitIndex] = [] if added is None else added

    def admit(self, unit: UnitIndex) -> int:
        """Admit a further row, the unit alone; returns the row's number."""
        self._added.append(unit)
        return self.code.rows + len(self._added) - 1

    def coefficients(self, row: int) -> Vector:
        """Coefficients of a row of C, or of one that was admitted; shape (M,)."""
        if row < self.code.rows:
            return np.asarray(self.code.matrix[row])
        alone = np.zeros(self.code.units)
        alone[self._added[row - self.code.rows]] = 1.0
        return alone

    def report(self, unit: UnitIndex, digest: bytes, *, learner: LearnerId) -> None:
        """Take a learner's digest of a unit."""
        self.reports.setdefault(learner, {})[unit] = digest

    def add(self, offer: Offer) -> None:
        """Take a row that was not received before.

        Raises:
            InvalidContribution: A vector of the wrong length or with values that are not finite, or
                one without its learner's digests of the row's units.
        """
        row, coded = offer.row, offer.coded
        if coded is not None:
            self._check(offer, coded)
        coefficients = self.coefficients(row) if row >= self.code.rows else None
        self.decoder.offer(row=row, vector=coded, coefficients=coefficients)
        if coded is not None and self.code.recovers_units:
            self.single_units.add(row, self.coefficients(row), coded)
        self.offers[row] = offer

    def _check(self, offer: Offer, coded: EncodedVector) -> None:
        if coded.shape != (self.length,):
            raise InvalidContribution(
                f"the coded vector of row {offer.row} has shape {coded.shape}, "
                f"expected ({self.length},)"
            )
        held = np.flatnonzero(self.coefficients(offer.row)).tolist()
        reported = self.reports.get(offer.learner, {})
        unreported = [unit for unit in held if unit not in reported]
        if unreported:
            raise InvalidContribution(
                f"the vector of row {offer.row} came without the digests of units {unreported}"
            )
        full = digest_bytes(self.statistics) + HASH_BYTES
        unhashed = [unit for unit in held if len(reported[unit]) != full]
        if unhashed and not self.code.recovers_units:
            raise InvalidContribution(
                f"the vector of row {offer.row} came without the linear hashes of units {unhashed}"
            )

    def without(self, learner: LearnerId) -> "Contributions":
        """The contributions of all other learners."""
        others = Contributions(
            self.code, sizes=self.sizes, statistics=self.statistics, added=self._added
        )
        others.reports = {
            other: digests for other, digests in self.reports.items() if other != learner
        }
        for offer in self.offers.values():
            if offer.learner != learner:
                others.add(offer)
        others.single_units = self.single_units
        return others

    @property
    def learners(self) -> list[LearnerId]:
        """Learners that sent a vector or a digest, ascending."""
        return sorted({*self.reports, *(offer.learner for offer in self.offers.values())})

    @property
    def senders(self) -> tuple[tuple[int, LearnerId], ...]:
        """Rows with their learners, in order of arrival."""
        return tuple((offer.row, offer.learner) for offer in self.offers.values())

    def matrix(self, rows: Iterable[int]) -> Matrix:
        """Coefficients of some rows, shape (rows, M)."""
        return np.array([self.coefficients(row) for row in rows]).reshape(-1, self.code.units)

    def vectors(self, rows: Iterable[int]) -> list[Vector]:
        """Coded vectors of some rows in float64, each of shape (P,)."""
        coded = [self.offers[row].coded for row in rows]
        return [np.asarray(vector, np.float64) for vector in coded if vector is not None]
