"""Events of an open round, and the orders that they lead to.

Vectors pass through as they came: the round reads who sent which row, and the host decodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fullrank.common.errors import FullrankError
from fullrank.common.types import EncodedVector, LearnerId, UnitIndex
from fullrank.rounds.decision import Decision, Decoded
from fullrank.rounds.reports import Claim


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """What a host tells an open round."""


@dataclass(frozen=True, slots=True)
class Begun(RoundEvent):
    """The round is open, and its rows are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(RoundEvent):
    """Digests of units that a learner finished."""

    learner: LearnerId
    digests: Mapping[UnitIndex, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived(RoundEvent):
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
class SectionsUnreadable(RoundEvent):
    """A learner could not read the sections of its assignment in the controller's block."""

    learner: LearnerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputedStatements(RoundEvent):
    """Statements that the controller has computed itself."""

    claims: frozenset[Claim]
    """The statements that were asked for."""
    values: Mapping[Claim, bytes]
    """Values of these and of the reports of their units; empty if they could not be computed."""


@dataclass(frozen=True, slots=True)
class MembershipChanged(RoundEvent):
    """A learner became ready, left or was quarantined."""


@dataclass(frozen=True, slots=True)
class Decided(RoundEvent):
    """The answer to ``Decode``."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class DeadlineEnded(RoundEvent):
    """The time that was last set has passed, and no event is left."""

    paused_s: Mapping[LearnerId, float]
    """Seconds since learners sent the last piece of a vector that they have begun to send."""


@dataclass(frozen=True, slots=True)
class GraceEnded(RoundEvent):
    """Learners that are still computing are late."""


@dataclass(frozen=True, slots=True)
class RoundOrder:
    """What a host is to do for an open round."""


@dataclass(frozen=True, slots=True)
class Assign(RoundOrder):
    """Send rows of C to their holders."""

    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class AddRows(RoundOrder):
    """Send single units as extra rows."""

    units: Mapping[Any, Mapping[int, UnitIndex]]
    """Unit of each row, by holder."""
    hedged: bool = False
    """False where the round could not be decided without them, which is a new attempt."""


@dataclass(frozen=True, slots=True)
class SendAgain(RoundOrder):
    """Send a learner its last assignment and all later ones by stream."""

    learner: LearnerId


@dataclass(frozen=True, slots=True)
class Precompute(RoundOrder):
    """Do what needs no further row, unless an event waits."""


@dataclass(frozen=True, slots=True)
class Decode(RoundOrder):
    """Decode the received rows, and answer before any other event."""


@dataclass(frozen=True, slots=True)
class Recompute(RoundOrder):
    """Compute statements in this process."""

    claims: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class Examine(RoundOrder):
    """Compute the units of a row that came with a value that is not finite, before going on."""

    row: int
    units: Sequence[UnitIndex]


@dataclass(frozen=True, slots=True)
class Expel(RoundOrder):
    """End the stream of a learner."""

    holder: Any
    error: FullrankError


@dataclass(frozen=True, slots=True)
class Quarantine(RoundOrder):
    """Bar a learner from rows; answered by ``MembershipChanged`` while the round is open."""

    learner: LearnerId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspect(RoundOrder):
    """Keep the names of learners of which one was wrong."""

    learners: Sequence[LearnerId]
    reason: str


@dataclass(frozen=True, slots=True)
class Stall(RoundOrder):
    """Say what the round waits for."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume(RoundOrder):
    """Say that the round is under way."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class SetTimer(RoundOrder):
    """Report the deadline of the round from now on."""


@dataclass(frozen=True, slots=True)
class Commit(RoundOrder):
    """End the round with its decision."""

    decision: Decoded


@dataclass(frozen=True, slots=True)
class Fail(RoundOrder):
    """End the run."""

    error: FullrankError
