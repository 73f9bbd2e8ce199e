"""Verdicts on a round and the decisions that carry them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, TypeAlias

from fullrank.common.rows import Rows
from fullrank.common.types import LearnerId


class Verdict(Enum):
    """Action open to the driver with the contributions received so far."""

    WAIT = auto()
    """The received rows do not determine the target yet."""
    COMMIT = auto()
    """Exact and every digest matches: the same bits for every J, code and arrival order. Where
    learners draw samples of their own: the variance is within its limit."""
    HIGH_VARIANCE = auto()
    """Learners draw samples of their own and the variance is above its limit; one more row lowers
    it."""
    INEXACT = auto()
    """Consistent, but too badly conditioned to be exact; one more row may mend it."""
    CORRUPT = auto()
    """A vector differs from its learner's computation, or learners disagree: never commit."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """More rows are needed."""

    verdict: ClassVar[Verdict] = Verdict.WAIT


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Contributions contradict one another."""

    verdict: ClassVar[Verdict] = Verdict.CORRUPT
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Decoded targets with the rows and the proof they rest on."""

    verdict: Verdict
    """COMMIT, HIGH_VARIANCE or INEXACT."""
    updates: Rows
    """T U, shape (K, P) float32: a target of one unit as it is on the grid, exact sums rounded
    once."""
    digests: Sequence[bytes]
    """Digest of each target, in order."""
    reports: Sequence[bytes]
    """The report of each unit that the updates agree with: its digest, and for sums its linear
    hash; empty for an unreported unit."""
    rows: tuple[tuple[int, LearnerId], ...]
    """The rows that the updates rest on, with their senders, in order of arrival."""
    error_bound: float = 0.0
    """Largest possible error of an entry: 0 when exact, inf where learners draw samples of their
    own."""
    variance: float | None = None
    """Predicted variance of the updates where learners draw samples of their own: the mean over
    the targets, in units of one learner's own; None where holders of a unit share samples."""
    culprit: LearnerId | None = None
    """The learner whose contribution was wrong and was left out."""
    reason: str = ""
    """Why the culprit was left out, or why the decode is INEXACT."""
    auditable: tuple[LearnerId, ...] = ()
    """INEXACT: learners whose wrong vector would have shown."""
    nameable: tuple[LearnerId, ...] = ()
    """INEXACT: the auditable learners that would also have been named."""

    @property
    def exact(self) -> bool:
        """True if every other J that decodes gives the same bits."""
        return self.verdict is Verdict.COMMIT and self.variance is None


Decision: TypeAlias = Waiting | Corrupt | Decoded
