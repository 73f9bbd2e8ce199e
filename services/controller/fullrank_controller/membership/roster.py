"""Who is attached: learners by index, and the one-slot outbox of each stream."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_bytes
from typing import TypeAlias

from fullrank.common.errors import DeadlinePassed, FullrankError
from fullrank.common.types import LearnerId
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.membership.placement import Domain

LEASE_BYTES = 16
"""Length of what proves a lease: nobody guesses it."""

Parcel: TypeAlias = Sequence[tuple[str, bytes]]
"""Encoded messages in order, each with the kind that its bytes are counted under."""


class Outbox:
    """What a stream has still to write: notices, and the rest of one assignment.

    A newer assignment replaces what is unwritten of the older one, a Commit drops it, and every
    notice goes before it, so that a slow stream never queues stale parameters.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        """Bytes written, by kind."""
        self.assigned_at = 0.0
        """When the last assignment that was not replaced was wholly written, loop time."""
        self._notices: deque[tuple[str, bytes]] = deque()
        self._parcel: deque[tuple[str, bytes]] = deque()
        self._deadline_s: float | None = None
        self._filled = asyncio.Event()

    def assign(self, parcel: Parcel, *, deadline_s: float) -> None:
        """Replace the assignment; a write that is still blocked after ``deadline_s`` is cut."""
        self._parcel, self._deadline_s = deque(parcel), deadline_s
        self._filled.set()

    def commit(self, notice: bytes) -> None:
        """Drop the assignment, whatever of it is unwritten, and say that it is committed."""
        self._parcel.clear()
        self._notify("commit", notice)

    def refuse(self, notice: bytes) -> None:
        """Say that a contribution came too late or twice; the assignment goes on after it."""
        self._notify("refused", notice)

    def _notify(self, kind: str, notice: bytes) -> None:
        self._notices.append((kind, notice))
        self._filled.set()

    async def drain(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write for ever.

        Raises:
            DeadlinePassed: The peer did not take a message in time.
        """
        while True:
            await self._filled.wait()
            self._filled.clear()
            while pending := self._notices or self._parcel:
                kind, message = pending.popleft()
                await self._write(write, message)
                self.sent[kind] += len(message)
                if pending is self._parcel and not pending:
                    self.assigned_at = asyncio.get_running_loop().time()

    async def _write(self, write: Callable[[bytes], Awaitable[None]], message: bytes) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                await write(message)
        except TimeoutError:
            raise DeadlinePassed(
                f"the learner took no message for {self._deadline_s:.1f} s"
            ) from None


@dataclass(eq=False, slots=True, kw_only=True)
class Member:
    """An attached learner."""

    learner: LearnerId
    host: str
    heard_at: float
    sent_at: float = 0.0
    """When the last message of its stream came, loop time; heartbeats are none."""
    begun: Ids | None = None
    """Of the vector that its stream has begun to send."""
    domain: Domain = ()
    lease: bytes = field(default_factory=partial(token_bytes, LEASE_BYTES), repr=False)
    """What its heartbeats must show."""
    process: bytes = b""
    """The learner's process, whatever stream it dials."""
    since: int = 0
    """Iterations that were committed when it joined."""
    outbox: Outbox = field(default_factory=Outbox)
    fingerprint: str = ""
    probe: tuple[bytes, ...] = ()
    ready: bool = False
    """It has sent a stable probe and may hold rows."""
    quarantined: str = ""
    """Why it holds no row any more, until its process is started anew."""
    expelled: asyncio.Future[None] = field(default_factory=asyncio.Future)
    """Fails with the reason when the controller ends the stream."""

    def expel(self, reason: FullrankError) -> None:
        """End the stream with the status of ``reason``."""
        if not self.expelled.done():
            self.expelled.set_exception(reason)


class Roster:
    """Attached learners. The index is a lease: the lowest free one, until the stream ends.

    Args:
        barred: Why processes are quarantined that may dial again; added to.
    """

    def __init__(self, barred: dict[bytes, str] | None = None) -> None:
        self._barred = {} if barred is None else barred
        self._members: dict[LearnerId, Member] = {}
        self._leases: dict[bytes, Member] = {}
        self._change = asyncio.Event()
        self._gone: Counter[str] = Counter()

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
        self, member: Member, *, fingerprint: str, probe: tuple[bytes, ...], stable: bool
    ) -> None:
        """Note what a learner's mathematics gives; an unstable one stays a spare for good."""
        member.fingerprint, member.probe, member.ready = fingerprint, probe, stable
        self._changed()

    def quarantine(self, learner: LearnerId, reason: str, *, present_at: int | None = None) -> None:
        """Deal no row to a learner whose contribution was wrong.

        Args:
            learner: Its index.
            reason: Why.
            present_at: The iteration of the contribution, if it is past: somebody else may hold the
                index by now.
        """
        member = self._members.get(learner)
        if member is None or (present_at is not None and member.since > present_at):
            return
        member.quarantined = reason
        if member.process:
            self._barred[member.process] = reason
        self._changed()

    def leave(self, member: Member) -> None:
        """Forget a learner whose stream ended."""
        if self._members.get(member.learner) is member:
            del self._members[member.learner], self._leases[member.lease]
            self._gone.update(member.outbox.sent)
            self._changed()

    def heard(self, lease: bytes, *, now: float) -> bool:
        """Note a heartbeat; False if no attached learner has this lease."""
        member = self._leases.get(lease)
        if member is not None:
            member.heard_at = now
        return member is not None

    def silent(self, *, since: float) -> list[Member]:
        """Members not heard since then."""
        return [member for member in self._members.values() if member.heard_at < since]

    @property
    def members(self) -> list[Member]:
        """All members by index."""
        return [self._members[learner] for learner in sorted(self._members)]

    @property
    def eligible(self) -> list[Member]:
        """Ready members of the commonest numeric identity, by index; all others are spares."""
        ready = [member for member in self.members if member.ready and not member.quarantined]
        identities = Counter((member.fingerprint, member.probe) for member in ready)
        if not identities:
            return []
        chosen = identities.most_common(1)[0][0]
        return [member for member in ready if (member.fingerprint, member.probe) == chosen]

    @property
    def quarantined(self) -> list[Member]:
        """Members that would be ready, but for what they contributed."""
        return [member for member in self.members if member.ready and member.quarantined]

    @property
    def unstable(self) -> list[Member]:
        """Members whose bits depend on what is computed together: spares for good."""
        return [member for member in self.members if member.fingerprint and not member.ready]

    def bytes_sent(self) -> Counter[str]:
        """Bytes written to all streams so far, by kind."""
        return sum((member.outbox.sent for member in self.members), self._gone.copy())

    async def changed(self) -> None:
        """Return at the next join, readiness or leave."""
        await self._change.wait()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
