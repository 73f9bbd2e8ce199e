"""Events of an open round, and the orders that they lead to.

Vectors pass through as they came: the round reads who sent which row, and the host decodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fullrank.common.errors import FullrankError
from fullrank.common.types import EncodedVector, LearnerId, UnitIndex
from fullrank.rounds.decision import Decision, Decoded
from fullrank.rounds.reports import Claim


@dataclass(frozen=True, slots=True)
class Begun:
    """The round is open, and its rows are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Digests of units that a learner finished."""

    learner: LearnerId
    digests: Mapping[UnitIndex, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A complete coded vector."""

    learner: LearnerId
    row: int
    coded: EncodedVector
    batch_digest: bytes = b""
    batch_bytes: int = 0
    """Bytes of the rows that the learner fetched."""
    items: tuple[int, ...] = ()
    """Items of the sample that it fetched; empty: all."""
    compute_s: float = 0.0
    started_s: float = 0.0
    """Time from the learner's complete assignment to its start of computing, seconds."""
    sent_s: float = 0.0
    """Time from the learner's complete assignment to the first byte it sent, seconds."""


@dataclass(frozen=True, slots=True)
class SectionsUnreadable:
    """A learner could not read the sections of its assignment in the controller's block."""

    learner: LearnerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputedStatements:
    """Statements that the controller has computed itself."""

    claims: frozenset[Claim]
    """The statements that were asked for."""
    values: Mapping[Claim, bytes]
    """Values of these and of the reports of their units; empty if they could not be computed."""


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """A learner became ready, left or was quarantined."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to ``Decode``."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class DeadlineEnded:
    """The time that was last set has passed, and no event is left."""

    paused_s: Mapping[LearnerId, float]
    """Seconds since learners sent the last piece of a vector that they have begun to send."""


@dataclass(frozen=True, slots=True)
class GraceEnded:
    """Learners that are still computing are late."""


RoundEvent: TypeAlias = (
    Begun
    | Reported
    | Arrived
    | SectionsUnreadable
    | RecomputedStatements
    | MembershipChanged
    | Decided
    | DeadlineEnded
    | GraceEnded
)


@dataclass(frozen=True, slots=True)
class Assign:
    """Send rows of C to their holders."""

    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class AddRows:
    """Send single units as extra rows."""

    units: Mapping[Any, Mapping[int, UnitIndex]]
    """Unit of each row, by holder."""
    hedged: bool = False
    """False where the round could not be decided without them, which is a new attempt."""


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Send a learner its last assignment and all later ones by stream."""

    learner: LearnerId


@dataclass(frozen=True, slots=True)
class Precompute:
    """Do what needs no further row, unless an event waits."""


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode the received rows, and answer before any other event."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """Compute statements in this process."""

    claims: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class Examine:
    """Compute the units of a row that came with a value that is not finite, before going on."""

    row: int
    units: Sequence[UnitIndex]


@dataclass(frozen=True, slots=True)
class Expel:
    """End the stream of a learner."""

    holder: Any
    error: FullrankError


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Bar a learner from rows; answered by ``MembershipChanged`` while the round is open."""

    learner: LearnerId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """Keep the names of learners of which one was wrong."""

    learners: Sequence[LearnerId]
    reason: str


@dataclass(frozen=True, slots=True)
class Stall:
    """Say what the round waits for."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Say that the round is under way."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report the deadline of the round from now on."""


@dataclass(frozen=True, slots=True)
class Commit:
    """End the round with its decision."""

    decision: Decoded


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run."""

    error: FullrankError


RoundOrder: TypeAlias = (
    Assign
    | AddRows
    | SendAgain
    | Precompute
    | Decode
    | Recompute
    | Examine
    | Expel
    | Quarantine
    | Suspect
    | Stall
    | Resume
    | SetTimer
    | Commit
    | Fail
)
