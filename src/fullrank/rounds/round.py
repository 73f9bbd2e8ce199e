"""The synchronous round: which coded vectors have come, and may the iteration be committed.

One state machine under the drivers that carry updates, services and one process; virtual time is
held to it by a test (docs/adr/0003). It knows no network and no clock; the driver asks ``decide``
after each offer and acts on the verdict.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from fullrank.codes import Code, Decoder
from fullrank.codes.decoding.completion import completing_units
from fullrank.codes.decoding.parity import FLOAT64, Parity, culprit
from fullrank.codes.decoding.single_unit_rows import SingleUnitRows
from fullrank.common.errors import Corrupted, InvalidContribution
from fullrank.common.types import FloatArray, LearnerId, Matrix, UnitIndex, Vector
from fullrank.common.updates import GRID, unit_digest

THREADED_BYTES = 8 * 2**20
"""Below, starting threads takes longer than hashing on one."""


class Verdict(Enum):
    """What the driver may do with what has come so far."""

    WAIT = auto()
    """The received rows do not determine the target yet, or a unit has no reported digest."""
    COMMIT = auto()
    """Exact and every digest matches: the same bits for every J, code and arrival order. Or, of
    learners' own samples, quiet enough."""
    HIGH_VARIANCE = auto()
    """Of learners' own samples, and noisier than wanted: one more row will mend some of it."""
    INEXACT = auto()
    """Consistent, but too badly conditioned to be exact: one more row may mend it."""
    CORRUPT = auto()
    """A vector is not what its learner computed, or learners disagree: never commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict with what it rests on."""

    verdict: Verdict
    updates: FloatArray | None = None
    """Shape (M, P) float32, which holds grid values exactly; for all but WAIT and CORRUPT."""
    digests: tuple[bytes, ...] = ()
    """Digest of each decoded unit, where there are updates."""
    rows: tuple[tuple[int, LearnerId], ...] = ()
    """The rows that the updates rest on, with their senders, in order of arrival."""
    error_bound: float = 0.0
    """Largest possible error of an entry; 0 when exact."""
    variance: float | None = None
    """Of learners' own samples: predicted variance of the updates, mean over the units, in that of
    one learner's own; None where holders of a unit share its samples."""
    culprit: LearnerId | None = None
    """For COMMIT and INEXACT: the learner whose contribution was wrong, and was left out."""
    auditable: tuple[LearnerId, ...] = ()
    """For INEXACT: learners whose wrong vector would have shown."""
    nameable: tuple[LearnerId, ...] = ()
    """For INEXACT: those of them who would have been named."""
    reason: str = ""
    """Why it is CORRUPT, or was before the culprit was left out."""

    @property
    def exact(self) -> bool:
        """Whether the bits are those of every other J that decodes."""
        return self.verdict is Verdict.COMMIT and self.variance is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """A row as it came."""

    learner: LearnerId
    row: int
    coded: Vector | None
    batch_digest: bytes


class Round:
    """One iteration's rows and reports.

    Args:
        iteration: Its number.
        code: C, shape (R, M).
        unit_sizes: P_i of each unit; coded vectors have length P = max P_i. Empty where only ranks
            matter.
        grid: The grid that updates were snapped to.
    """

    def __init__(
        self, iteration: int, code: Code, *, unit_sizes: Sequence[int] = (), grid: float = GRID
    ) -> None:
        self.iteration = iteration
        self.received: list[LearnerId] = []
        """J as learners, in order of arrival."""
        self._unit_sizes = tuple(unit_sizes)
        self._length = max(unit_sizes, default=0)
        self._code, self._grid = code, grid
        self._added: list[UnitIndex] = []
        self._decoder = self._make_decoder(())
        self._lone = SingleUnitRows(self._unit_sizes, grid=grid)
        self._offers: dict[int, _Offer] = {}
        self._reports: dict[LearnerId, dict[UnitIndex, bytes]] = {}

    def _make_decoder(self, offers: Iterable[_Offer]) -> Decoder:
        decoder = Decoder(self._code.matrix, grid=self._grid)
        for offer in offers:
            self._take(decoder, offer.row, offer.coded)
        return decoder

    def _take(self, decoder: Decoder, row: int, coded: Vector | None) -> None:
        own = self.coefficients(row) if row >= self._code.rows else None
        decoder.offer(row=row, vector=coded, coefficients=own)

    def add(self, unit: UnitIndex) -> int:
        """Admit a further row, the unit alone; returns the row's number."""
        self._added.append(unit)
        return self._code.rows + len(self._added) - 1

    def coefficients(self, row: int) -> Vector:
        """Of a row of C, or of one that was added; shape (M,)."""
        if row < self._code.rows:
            return np.asarray(self._code.matrix[row])
        alone = np.zeros(self._code.units)
        alone[self._added[row - self._code.rows]] = 1.0
        return alone

    def missing(self, awaited: Collection[int] = ()) -> list[UnitIndex]:
        """The fewest units that, each alone, complete the rows received and those awaited."""
        return self._completing({*self._offers, *awaited})

    def missing_without(self, learner: LearnerId) -> list[UnitIndex]:
        """The fewest units that, each alone, complete the rows received from others."""
        return self._completing(
            row for row, each in self._offers.items() if each.learner != learner
        )

    def _completing(self, rows: Iterable[int]) -> list[UnitIndex]:
        known = [self.coefficients(row) for row in sorted(rows)]
        return completing_units(np.array(known).reshape(-1, self._code.units))

    def report(self, unit: UnitIndex, digest: bytes, *, learner: LearnerId) -> None:
        """Note the digest that a learner computed for a unit."""
        self._reports.setdefault(learner, {})[unit] = digest

    def offer(
        self,
        *,
        learner: LearnerId,
        row: int,
        coded: Vector | None = None,
        batch_digest: bytes = b"",
    ) -> bool:
        """Take a row's coded vector; False if the row was received before.

        Args:
            learner: Who sent it.
            row: Row of C, or one that was added.
            coded: y, shape (P,) float64; None where only ranks matter.
            batch_digest: Of the minibatch that the learner used; all must agree.

        Raises:
            InvalidContribution: Wrong length, or a value that is not finite.
        """
        if row in self._offers:
            return False
        if coded is not None and coded.shape != (self._length,):
            raise InvalidContribution(
                f"the coded vector of row {row} has shape {coded.shape}, expected ({self._length},)"
            )
        self._take(self._decoder, row, coded)
        if coded is not None:
            self._lone.add(row, self.coefficients(row), coded)
        self._offers[row] = _Offer(learner=learner, row=row, coded=coded, batch_digest=batch_digest)
        self.received.append(learner)
        return True

    @property
    def reported(self) -> Mapping[LearnerId, int]:
        """How many units each learner has reported the digest of."""
        return {learner: len(own) for learner, own in self._reports.items()}

    @property
    def reports(self) -> Mapping[LearnerId, Mapping[UnitIndex, bytes]]:
        """Every digest that was reported."""
        return self._reports

    @property
    def rows(self) -> frozenset[int]:
        """Rows received."""
        return frozenset(self._offers)

    @property
    def rank(self) -> int:
        """The rank of C_J."""
        return self._decoder.rank

    @property
    def decodable(self) -> bool:
        """rank(C_J) = M."""
        return self._decoder.decodable

    @property
    def condition(self) -> float:
        """Two-norm condition number of C_J."""
        return self._decoder.condition

    @property
    def preparable(self) -> bool:
        """Whether ``prepare`` would spare ``decide`` anything."""
        return self._lone.waiting

    def prepare(self) -> None:
        """Decode and hash, while further rows are awaited, the units that came alone."""
        self._lone.take()

    def decide(self) -> Decision:
        """Decode if the rank allows it, and check the certificate and the digests.

        If something is wrong, each learner is left out in turn: where that of a single one mends
        all, it is the culprit, and the others' rows are committed. This rests on one learner at
        most being wrong in an iteration; two that agree on the same wrong bits would outvote one.
        """
        if not self.decodable or len(self._known(self._reports)) < len(self._unit_sizes):
            return Decision(verdict=Verdict.WAIT)
        self.prepare()
        found = self._judge(self._decoder, tuple(self._offers.values()), self._reports)
        return self._leave_one_out(found) if found.verdict is Verdict.CORRUPT else found

    def _known(
        self, reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]]
    ) -> dict[UnitIndex, set[bytes]]:
        """All digests reported for each unit."""
        known: dict[UnitIndex, set[bytes]] = {}
        for own in reports.values():
            for unit, digest in own.items():
                known.setdefault(unit, set()).add(digest)
        return known

    def _judge(
        self,
        decoder: Decoder,
        offers: Sequence[_Offer],
        reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]],
    ) -> Decision:
        """A verdict on some rows and reports; whether they agree comes before their rank."""
        if len({offer.batch_digest for offer in offers}) > 1:
            return corrupt("learners used different minibatches")
        known = self._known(reports)
        disputed = sorted(unit for unit, digests in known.items() if len(digests) > 1)
        if disputed:
            return corrupt(f"learners disagree on the updates of units {disputed}")
        if not decoder.decodable or len(known) < len(self._unit_sizes):
            return Decision(verdict=Verdict.WAIT)
        rows = tuple((offer.row, offer.learner) for offer in offers)
        alone = self._lone.updates(row for row, _ in rows)
        if alone is not None and not _contradicted(alone[1], known):
            updates, digests = alone
            return Decision(verdict=Verdict.COMMIT, updates=updates, digests=digests, rows=rows)
        try:
            updates = self._decode(decoder)
        except Corrupted as error:
            return corrupt(str(error))
        digests = self._digests(updates)
        if not decoder.exact:
            found = Decision(
                verdict=Verdict.INEXACT,
                updates=updates,
                digests=digests,
                rows=rows,
                error_bound=decoder.error_bound,
            )
            return self._check_parity(found, offers)
        if wrong := _contradicted(digests, known):
            return corrupt(f"the updates of units {wrong} differ from what learners reported")
        return Decision(verdict=Verdict.COMMIT, updates=updates, digests=digests, rows=rows)

    def _check_parity(self, found: Decision, offers: Sequence[_Offer]) -> Decision:
        """Whether an inexact result rests on vectors that agree with one another."""
        parity = Parity(self._rows_of(offers))
        if parity.residual(_stacked(offers)) > FLOAT64:
            return corrupt("vectors contradict one another by more than rounding")
        learners = np.array([offer.learner for offer in offers])
        return replace(
            found,
            auditable=tuple(sorted(learners[parity.auditable].tolist())),
            nameable=tuple(sorted(learners[parity.nameable].tolist())),
        )

    def _rows_of(self, offers: Sequence[_Offer]) -> Matrix:
        return np.stack([self.coefficients(offer.row) for offer in offers])

    def _leave_one_out(self, found: Decision) -> Decision:
        """Commit without the one learner that is wrong, if it is certain who that is.

        Where all reports agree, whatever decodes to them is right; if leaving out either of two
        mends all, the error was smaller than rounding and nobody is named. Where they do not agree,
        every party to the dispute must have been left out and only one of them have mended it.
        """
        outcomes = {learner: self._without(learner) for learner in self._suspects()}
        mended = [each for each, one in outcomes.items() if one.verdict is Verdict.COMMIT]
        untried = [each for each, one in outcomes.items() if one.verdict is Verdict.WAIT]
        agreed = all(len(digests) == 1 for digests in self._known(self._reports).values())
        named = self._contradicting() if agreed and not mended else None
        if named is not None and outcomes[named].verdict is Verdict.INEXACT:
            return replace(outcomes[named], culprit=named, reason=found.reason)
        if not mended or (not agreed and (untried or len(mended) > 1)):
            return found
        certain = mended[0] if len(mended) == 1 else None
        return replace(outcomes[mended[0]], culprit=certain, reason=found.reason)

    def _contradicting(self) -> LearnerId | None:
        """The learner whose vector alone contradicts the others, by parity."""
        offers = tuple(self._offers.values())
        index = culprit(self._rows_of(offers), _stacked(offers), threshold=FLOAT64)
        return None if index is None else offers[index].learner

    def _suspects(self) -> list[LearnerId]:
        return sorted({*self.received, *self._reports})

    def _without(self, learner: LearnerId) -> Decision:
        offers = [offer for offer in self._offers.values() if offer.learner != learner]
        reports = {each: own for each, own in self._reports.items() if each != learner}
        return self._judge(self._make_decoder(offers), offers, reports)

    def _digests(self, updates: FloatArray) -> tuple[bytes, ...]:
        """Of each unit; large ones on all cores, for hashing leaves the interpreter to others."""
        own = [updates[unit, :size] for unit, size in enumerate(self._unit_sizes)]
        if sum(update.nbytes for update in own) < THREADED_BYTES:
            return tuple(map(unit_digest, own))
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            return tuple(pool.map(unit_digest, own))

    def _decode(self, decoder: Decoder) -> FloatArray:
        """All updates, block by block, so that each is cast while it is in the cache."""
        updates = np.empty((len(self._unit_sizes), self._length), np.float32)
        for start, block in decoder.blocks():
            updates[:, start : start + block.shape[1]] = block
        return updates


def _contradicted(
    digests: Sequence[bytes], known: Mapping[UnitIndex, set[bytes]]
) -> list[UnitIndex]:
    """Units that were reported otherwise."""
    return [unit for unit, own in enumerate(digests) if known[unit] != {own}]


def _stacked(offers: Sequence[_Offer]) -> Matrix:
    """Y, shape (n, P)."""
    return np.stack([offer.coded for offer in offers if offer.coded is not None])


def corrupt(reason: str) -> Decision:
    """Nothing is committed, for this reason."""
    return Decision(verdict=Verdict.CORRUPT, reason=reason)
