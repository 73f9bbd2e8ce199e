"""Misbehaviours of a fake learner."""

from enum import Enum, auto


class Fault(Enum):
    """Misbehaviour of a learner; after a refusal that leaves its stream open it behaves."""

    OK = auto()
    NAN = auto()
    WRONG_LENGTH = auto()
    WRONG_ROW = auto()
    STALE = auto()
    DUPLICATE = auto()
    BAD_CRC = auto()
    GARBAGE = auto()
    CHUNKS_FIRST = auto()
    DIE_BEFORE = auto()
    DIE_MID_STREAM = auto()
    HANG_MID_STREAM = auto()
    NO_DIGESTS = auto()
    STALL = auto()
    WRONG_DIGEST = auto()
    WRONG_VECTOR = auto()
    BIT_FLIP = auto()
    SCALE = auto()
    FORGED_IDENTITY = auto()
    WRONG_UPDATE = auto()
    """Wrong digests that match the vector: only another learner's digest, or a proof, shows it."""
    WRONG_BATCH = auto()
    """The same, from a minibatch with wrong entries, whose digest differs, too."""
    WRONG_LATE = auto()
    """The same, after a stall."""
    OTHER_VERSION = auto()
    UNSTABLE_PROBE = auto()
    OTHER_FINGERPRINT = auto()


WRONG = (Fault.WRONG_UPDATE, Fault.WRONG_LATE)
"""Faults of the computation."""

COMPUTED = (*WRONG, Fault.WRONG_BATCH)
"""Faults of contributions that agree with themselves."""
