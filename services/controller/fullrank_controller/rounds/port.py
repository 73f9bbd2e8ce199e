"""The port through which the driver has updates computed, and their cancellation on a thread."""

import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fullrank.audit.proof import Evidence
from fullrank.codes import Code
from fullrank.common.errors import Cancelled
from fullrank.common.types import LearnerId
from fullrank.planning.candidates import Plan
from fullrank.replay.samplers import Sample
from fullrank.rounds.decision import Decoded
from fullrank.runs.record import IterationRecord
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.rounds.timeline import Timeline


class Cancellation:
    """Asks a computing thread to stop at its next check.

    Args:
        reason: Text of the error that stops it.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._asked = threading.Event()

    def ask(self) -> None:
        """Let every further check raise."""
        self._asked.set()

    def check(self) -> None:
        """Raise ``Cancelled`` once asked to; called by the computing thread between stages."""
        if self._asked.is_set():
            raise Cancelled(self._reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedRound:
    """A decided round with the facts of its record and its journal entry."""

    ids: Ids
    code: Code
    decision: Decoded
    evidence: Evidence
    """Contents of the journal from which its units can be recomputed."""
    timeline: Timeline
    dispatched_at: float
    """Loop time before the first assignment."""
    received: tuple[LearnerId, ...]
    """Learners whose rows were received, in order of arrival."""
    late: tuple[LearnerId, ...] = ()
    """Learners that were assigned a row and had not answered."""
    quarantined: tuple[LearnerId, ...] = ()
    """Learners that were barred from rows since the round before."""
    condition: float
    """Two-norm condition number of C_J."""
    hedged: int = 0
    """Units that idle learners were given while their holders were late."""
    reported: Mapping[LearnerId, int] = field(default_factory=dict)
    """Number of units whose comparable digest each learner has reported."""
    bytes_sent: Mapping[str, int] = field(default_factory=dict)
    """Bytes to learners in this iteration, by kind."""
    bytes_received: Mapping[str, int] = field(default_factory=dict)
    """Bytes from learners in this iteration, by kind."""


class Rounds(Protocol):
    """Computes the updates of iterations: by learners, or in this process."""

    @property
    def plan(self) -> Plan | None:
        """The planner's last plan, if the code is ``auto``."""

    async def assemble(self, *, resumed: bool) -> None:
        """Wait for the means to compute, before the first round; when resumed, for enough."""

    async def settle(self, iteration: int) -> None:
        """Prepare the current parameters, those of an iteration; fix its code and the holders.

        Raises:
            NotDecodable: By policy, when no code exists for the learners that are there.
        """

    async def compute(self, sample: Sample) -> DecidedRound:
        """Compute the updates of a sample.

        Raises:
            NotDecodable: By policy, when the received rows do not determine the updates.
            Corrupted: Vectors contradict each other or the digests.
        """

    async def observe(self, record: IterationRecord) -> None:
        """Take a committed iteration into account."""

    async def audit(self, durable: Callable[[], Awaitable[None]]) -> None:
        """Await late reports of the round before and settle disputes, once it is ``durable``.

        Raises:
            Condemned: A committed unit was wrong.
        """
