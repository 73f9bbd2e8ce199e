"""What the servicer tells the driver: contributions, in the order in which they came."""

from collections.abc import Mapping
from dataclasses import dataclass

from fullrank.common.types import LearnerId, UnitIndex, Vector
from fullrank.v1.common_pb2 import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A learner finished units and sent their digests."""

    ids: Ids
    learner: LearnerId
    digests: Mapping[UnitIndex, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A coded vector is complete."""

    ids: Ids
    learner: LearnerId
    row: int
    coded: Vector
    batch_digest: bytes
    compute_s: float
    started_s: float
    """From the learner's complete assignment to its start of computing, seconds."""
    sent_s: float
    """From the learner's complete assignment to the first byte it sent, seconds."""


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """Somebody became ready or left."""


Event = Reported | Arrived | MembershipChanged
