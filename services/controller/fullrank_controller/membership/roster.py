"""Attached learners by index, and which of them may hold rows."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from secrets import token_bytes

from fullrank.common.errors import FullrankError, ServiceLost
from fullrank.common.types import LearnerId
from fullrank.config.tree import ControllerSettings
from fullrank.rpc.shared_memory import ReadBlock
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners.outbox import Outbox
from fullrank_controller.membership.placement import Domain
from fullrank_controller.watchdog import Watchdog

LEASE_BYTES = 16
"""Length of a lease token, too long to guess."""


@dataclass(eq=False, slots=True, kw_only=True)
class Member:
    """An attached learner."""

    learner: LearnerId
    host: str
    heard_at: float
    """Loop time of the last message or heartbeat."""
    sent_at: float = 0.0
    """Loop time of the last message on its stream; heartbeats do not count."""
    begun: Ids | None = None
    """Ids of the vector that its stream has begun to send."""
    domain: Domain = ()
    lease: bytes = field(default_factory=partial(token_bytes, LEASE_BYTES), repr=False)
    """Token that its heartbeats must carry."""
    process: bytes = b""
    """Identity of the learner's process, stable across its streams."""
    since: int = 0
    """Iterations that were applied when it joined."""
    outbox: Outbox = field(default_factory=Outbox)
    fingerprint: str = ""
    probe: tuple[bytes, ...] = ()
    ready: bool = False
    """True once it has sent a stable probe, so that it may hold rows."""
    maps_table: bool = False
    """True if it gathers minibatches from the table's file instead of receiving them."""
    batch_bytes: int = 0
    """Bytes of the rows of its last minibatch."""
    vectors: ReadBlock | None = None
    """The learner's block, through which sections and vectors pass; None: they are sent."""
    quarantined: str = ""
    """Reason why it holds no row until its process is restarted; empty if it is trusted."""
    expelled: asyncio.Future[None] = field(default_factory=asyncio.Future)
    """Fails with the reason when the controller ends the stream."""

    def expel(self, reason: FullrankError) -> None:
        """End the stream with the status of ``reason``; the first reason counts."""
        if not self.expelled.done():
            self.expelled.set_exception(reason)


class Roster:
    """Attached learners. An index is a lease: the lowest free one, until the stream ends.

    Args:
        barred: Reasons for quarantine by process, kept across terms; the roster adds to it.
    """

    def __init__(self, barred: dict[bytes, str] | None = None) -> None:
        self._barred = {} if barred is None else barred
        self._members: dict[LearnerId, Member] = {}
        self._leases: dict[bytes, Member] = {}
        self._change = asyncio.Event()
        self._sent_by_departed: Counter[str] = Counter()

    def join(
        self,
        host: str,
        *,
        now: float,
        domain: Domain = (),
        process: bytes = b"",
        since: int = 0,
    ) -> Member:
        """Admit a learner that said Hello."""
        learner = next(j for j in range(len(self._members) + 1) if j not in self._members)
        member = Member(
            learner=learner,
            host=host,
            heard_at=now,
            domain=domain,
            process=process,
            since=since,
            quarantined=self._barred.get(process, ""),
        )
        self._members[learner] = self._leases[member.lease] = member
        return member

    def ready(
        self,
        member: Member,
        *,
        fingerprint: str,
        probe: tuple[bytes, ...],
        stable: bool,
        maps_table: bool = False,
        vectors: ReadBlock | None = None,
    ) -> None:
        """Record a learner's numeric identity; an unstable learner remains a spare."""
        member.fingerprint, member.probe, member.ready = fingerprint, probe, stable
        member.maps_table, member.vectors = maps_table, vectors
        self._notify()

    def quarantine(self, learner: LearnerId, reason: str, *, present_at: int | None = None) -> None:
        """Assign no more rows to a learner whose contribution was wrong.

        Args:
            learner: Its index.
            reason: Why it is quarantined.
            present_at: Iteration of the contribution if it is past; a later holder of the index is
                left alone.
        """
        member = self._members.get(learner)
        if member is None or (present_at is not None and member.since > present_at):
            return
        member.quarantined = reason
        if member.process:
            self._barred[member.process] = reason
        self._notify()

    def leave(self, member: Member) -> None:
        """Forget a learner whose stream ended."""
        if self._members.get(member.learner) is member:
            del self._members[member.learner], self._leases[member.lease]
            self._sent_by_departed.update(member.outbox.sent)
            self._notify()

    def heard(self, lease: bytes, *, now: float) -> bool:
        """Record a heartbeat; False if no attached learner has this lease."""
        member = self._leases.get(lease)
        if member is not None:
            member.heard_at = now
        return member is not None

    @property
    def members(self) -> list[Member]:
        """All members by index."""
        return [self._members[learner] for learner in sorted(self._members)]

    @property
    def eligible(self) -> list[Member]:
        """Trusted ready members of the commonest numeric identity; all others are spares."""
        ready = [member for member in self.members if member.ready and not member.quarantined]
        identities = Counter((member.fingerprint, member.probe) for member in ready)
        if not identities:
            return []
        chosen = identities.most_common(1)[0][0]
        return [member for member in ready if (member.fingerprint, member.probe) == chosen]

    @property
    def unstable(self) -> list[Member]:
        """Members whose bits depend on which units are computed together; always spares."""
        return [member for member in self.members if member.fingerprint and not member.ready]

    def bytes_sent(self) -> Counter[str]:
        """Bytes written to all streams so far, by kind."""
        return sum((member.outbox.sent for member in self.members), self._sent_by_departed.copy())

    async def changed(self) -> None:
        """Return at the next join, readiness, quarantine or leave."""
        await self._change.wait()

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


async def expel_silent(roster: Roster, settings: ControllerSettings, watchdog: Watchdog) -> None:
    """End the streams of learners that have been silent for too long, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        with watchdog.phase("the event loop"):
            await asyncio.sleep(settings.heartbeat_s)
        for member in roster.members:
            if member.heard_at < clock() - settings.lost_after_s:
                member.expel(ServiceLost(f"nothing was heard for {settings.lost_after_s:.1f} s"))
