"""The synchronous round: which coded vectors have come, and may the iteration be committed.

One state machine under the drivers that carry updates, services and one process; virtual time is
held to it by a test (docs/adr/0003). It knows no network and no clock; the driver asks ``decide``
after each offer and acts on the verdict.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from fullrank.codes import Code, Decoder
from fullrank.errors import Corrupted, InvalidContribution
from fullrank.types import FloatArray, LearnerId, Unit, Vector
from fullrank.updates import GRID, unit_digest

THREADED_BYTES = 8 * 2**20
"""Below, starting threads takes longer than hashing on one."""


class Verdict(Enum):
    """What the driver may do with what has come so far."""

    WAIT = auto()
    """The received rows do not determine the target yet, or a unit has no reported digest."""
    COMMIT = auto()
    """Exact and every digest matches: the same bits for every J, code and arrival order."""
    INEXACT = auto()
    """Consistent, but too badly conditioned to be exact: one more row may mend it."""
    CORRUPT = auto()
    """A vector is not what its learner computed, or learners disagree: never commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict with what it rests on."""

    verdict: Verdict
    updates: FloatArray | None = None
    """Shape (M, P) float32, which holds grid values exactly; for COMMIT and INEXACT."""
    digests: tuple[bytes, ...] = ()
    """Digest of each decoded unit, for COMMIT and INEXACT."""
    error_bound: float = 0.0
    """Largest possible error of an entry; 0 when exact."""
    reason: str = ""
    """Why it is CORRUPT."""


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
        self._decoder = Decoder(code, target="units", grid=grid)
        self._rows: set[int] = set()
        self._reports: dict[Unit, set[bytes]] = {}
        self._batches: set[bytes] = set()

    def report(self, unit: Unit, digest: bytes) -> None:
        """Note the digest that a learner computed for a unit."""
        self._reports.setdefault(unit, set()).add(digest)

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
            row: Row of C.
            coded: y, shape (P,) float64; None where only ranks matter.
            batch_digest: Of the minibatch that the learner used; all must agree.

        Raises:
            InvalidContribution: Wrong length, or a value that is not finite.
        """
        if row in self._rows:
            return False
        if coded is not None and coded.shape != (self._length,):
            raise InvalidContribution(
                f"the coded vector of row {row} has shape {coded.shape}, expected ({self._length},)"
            )
        self._decoder.offer(row=row, vector=coded)
        self._rows.add(row)
        self._batches.add(batch_digest)
        self.received.append(learner)
        return True

    @property
    def rows(self) -> frozenset[int]:
        """Rows received."""
        return frozenset(self._rows)

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

    def decide(self) -> Decision:
        """Decode if the rank allows it, and check the certificate and the digests."""
        sizes = enumerate(self._unit_sizes)
        if not self.decodable or any(unit not in self._reports for unit, _ in sizes):
            return Decision(verdict=Verdict.WAIT)
        if len(self._batches) > 1:
            return _corrupt("learners used different minibatches")
        disputed = sorted(unit for unit, known in self._reports.items() if len(known) > 1)
        if disputed:
            return _corrupt(f"learners disagree on the updates of units {disputed}")
        try:
            updates = self._decode()
        except Corrupted as error:
            return _corrupt(str(error))
        digests = _digests([updates[unit, :size] for unit, size in enumerate(self._unit_sizes)])
        if not self._decoder.exact:
            return Decision(
                verdict=Verdict.INEXACT,
                updates=updates,
                digests=digests,
                error_bound=self._decoder.error_bound,
            )
        wrong = [unit for unit, own in enumerate(digests) if self._reports[unit] != {own}]
        if wrong:
            return _corrupt(f"the updates of units {wrong} differ from what learners reported")
        return Decision(verdict=Verdict.COMMIT, updates=updates, digests=digests)

    def _decode(self) -> FloatArray:
        """All updates, block by block, so that each is cast while it is in the cache."""
        updates = np.empty((len(self._unit_sizes), self._length), np.float32)
        for start, block in self._decoder.blocks():
            updates[:, start : start + block.shape[1]] = block
        return updates


def _digests(updates: Sequence[FloatArray]) -> tuple[bytes, ...]:
    """Of each unit; large ones on all cores, for hashing leaves the interpreter to others."""
    if sum(update.nbytes for update in updates) < THREADED_BYTES:
        return tuple(map(unit_digest, updates))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return tuple(pool.map(unit_digest, updates))


def _corrupt(reason: str) -> Decision:
    return Decision(verdict=Verdict.CORRUPT, reason=reason)
