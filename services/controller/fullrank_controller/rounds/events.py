"""Events of an open round, as learners' streams report them."""

from collections.abc import Mapping
from dataclasses import dataclass

from fullrank.common.types import EncodedVector, LearnerId, UnitIndex
from fullrank.rounds.reports import Claim
from fullrank.v1.common_pb2 import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Digests of units that a learner finished."""

    ids: Ids
    learner: LearnerId
    digests: Mapping[UnitIndex, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A complete coded vector."""

    ids: Ids
    learner: LearnerId
    row: int
    coded: EncodedVector
    batch_digest: bytes
    batch_bytes: int = 0
    """Bytes of the rows that the learner fetched."""
    items: tuple[int, ...] = ()
    """Items of the sample that it fetched; empty: all."""
    compute_s: float
    started_s: float
    """Time from the learner's complete assignment to its start of computing, seconds."""
    sent_s: float
    """Time from the learner's complete assignment to the first byte it sent, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionsUnreadable:
    """A learner could not read the sections of its assignment in the controller's block."""

    ids: Ids
    learner: LearnerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputedStatements:
    """Statements that the controller has computed itself."""

    ids: Ids
    claims: frozenset[Claim]
    """The statements that were asked for."""
    values: Mapping[Claim, bytes]
    """Values of these and of the reports of their units; empty if they could not be computed."""


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """A learner became ready or left."""


RoundEvent = Reported | Arrived | RecomputedStatements | SectionsUnreadable | MembershipChanged
