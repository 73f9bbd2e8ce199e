"""Attached learners by index, and which of them may hold rows."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_bytes
from typing import Self

from fullrank.common.errors import FullrankError, Overloaded, ServiceLost
from fullrank.common.types import LearnerId
from fullrank.config.tree import ControllerSettings
from fullrank.rpc.shared_memory import ReadBlock
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners.outbox import Outbox
from fullrank_controller.membership.placement import Domain
from fullrank_controller.watchdog import Watchdog

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")

DEFAULTS = ControllerSettings()

LEASE_BYTES = 16
"""Length of a lease token, too long to guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """What the bits of a process depend on; processes of one identity compute the same bits."""

    identity: str
    """Digest of fingerprint and probe, 16 letters: no other value of a setting looks alike."""
    fingerprint: str
    """Kernels, instructions, torch, threads and device; empty if the identity alone is known."""
    since: int = 0
    """First iteration of the run that is computed so."""

    @classmethod
    def of(cls, fingerprint: str, probe: Sequence[bytes]) -> Self:
        """The numerics of a process, from its fingerprint and the digests of its probe."""
        digest = hashlib.blake2b(fingerprint.encode(), digest_size=8)
        for part in probe:
            digest.update(len(part).to_bytes(4, "big") + part)
        return cls(identity=digest.hexdigest().translate(_LETTERS), fingerprint=fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a stream comes from, as its connection proves."""

    address: str = ""
    """Network address of its host, without the port."""
    certificate: str = ""
    """Identity in its certificate; empty in plain text."""
    bound: bool = False
    """True if the certificate is for one learner alone."""


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
    origin: Origin = Origin()
    lease: bytes = field(default_factory=partial(token_bytes, LEASE_BYTES), repr=False)
    """Token that its heartbeats must carry."""
    process: bytes = b""
    """Identity of the learner's process, stable across its streams."""
    since: int = 0
    """Iterations that were applied when it joined."""
    outbox: Outbox = field(default_factory=Outbox)
    numerics: Numerics | None = None
    """What its bits depend on; None before it is ready or found to be unstable."""
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


DEFAULT_ORIGIN = Origin()


class Roster:
    """Attached learners. An index is a lease: the lowest free one, until the stream ends.

    Args:
        barred: Reasons for quarantine by process, kept across terms; the roster adds to it.
        settings: Limits on the streams of one origin.

    Attributes:
        numerics: Numerics of the run, without which no learner holds a row; None until those of
            the first epoch's learners are taken.
    """

    def __init__(
        self,
        barred: dict[bytes, str] | None = None,
        settings: ControllerSettings = DEFAULTS,
    ) -> None:
        self._settings = settings
        self.numerics: Numerics | None = None
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
        origin: Origin = DEFAULT_ORIGIN,
        since: int = 0,
    ) -> Member:
        """Admit a learner that said Hello.

        Raises:
            Overloaded: Too many streams of its origin are attached.
        """
        self._check_room(origin, process)
        learner = next(j for j in range(len(self._members) + 1) if j not in self._members)
        member = Member(
            learner=learner,
            host=host,
            heard_at=now,
            domain=domain,
            origin=origin,
            process=process,
            since=since,
            quarantined=self._barred.get(process, ""),
        )
        self._members[learner] = self._leases[member.lease] = member
        return member

    def _check_room(self, origin: Origin, process: bytes) -> None:
        """Make room for a stream: one of the same bound certificate and process has been cut."""
        alike = [each for each in self.members if each.origin.certificate == origin.certificate]
        if origin.bound:
            for member in alike:
                if member.process != process:
                    raise Overloaded(
                        f"the certificate of {origin.certificate} is in use by another process on "
                        f"{member.host}, and admits one stream"
                    )
                member.expel(ServiceLost("its process has dialled again"))
                self.leave(member)
            return
        near = sum(each.origin.address == origin.address for each in self.members)
        if near >= self._settings.streams_per_host:
            raise Overloaded(
                f"{near} learners are attached from {origin.address}, as many as "
                "controller.streams_per_host admits"
            )
        if len(alike) >= self._settings.streams_per_certificate:
            raise Overloaded(
                f"{len(alike)} learners are attached with the certificate of "
                f"{origin.certificate or 'nobody'}, as many as "
                "controller.streams_per_certificate admits"
            )

    def ready(
        self,
        member: Member,
        *,
        numerics: Numerics,
        stable: bool,
        maps_table: bool = False,
        vectors: ReadBlock | None = None,
    ) -> None:
        """Record a learner's numeric identity; an unstable learner remains a spare."""
        member.numerics, member.ready = numerics, stable
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

    def member(self, learner: LearnerId) -> Member | None:
        """The member with an index; None if there is none."""
        return self._members.get(learner)

    @property
    def eligible(self) -> list[Member]:
        """Trusted ready members of the run's numerics; all others are spares."""
        ready = [member for member in self.members if member.ready and not member.quarantined]
        wanted = self.identity or _commonest(ready)
        return [member for member in ready if _identity(member) == wanted]

    @property
    def identity(self) -> str:
        """Identity of the run's numerics; empty until they are known."""
        return self.numerics.identity if self.numerics is not None else ""

    def objection(self, member: Member) -> str:
        """Why a member that is not quarantined may hold no row; empty if it may."""
        if member.numerics is None:
            return ""
        if not member.ready:
            return "its bits depend on what it computes together"
        if self.numerics is not None and member.numerics.identity != self.numerics.identity:
            return (
                f"its numeric fingerprint is {member.numerics.identity}, that of the run "
                f"{self.numerics.identity}"
            )
        return ""

    def excluded(self) -> str:
        """A clause that counts the members that are attached and cannot help."""
        unstable = [each for each in self.members if each.numerics is not None and not each.ready]
        others = Counter(
            _identity(member)
            for member in self.members
            if member.ready and not member.quarantined and self.objection(member)
        )
        clause = ""
        if unstable:
            clause = f"; the bits of {len(unstable)} depend on what they compute together"
        if others and self.numerics is not None:
            [(identity, count)] = others.most_common(1)
            clause += (
                f"; {others.total()} have another numeric fingerprint than the run "
                f"({self.numerics.identity}), {count} of them {identity}: to go on with those, "
                f"set audit.fingerprint={identity}"
            )
        return clause

    def bytes_sent(self) -> Counter[str]:
        """Bytes written to all streams so far, by kind."""
        return sum((member.outbox.sent for member in self.members), self._sent_by_departed.copy())

    async def changed(self) -> None:
        """Return at the next join, readiness, quarantine or leave."""
        await self._change.wait()

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _identity(member: Member) -> str:
    return member.numerics.identity if member.numerics is not None else ""


def _commonest(members: Sequence[Member]) -> str:
    """The identity of most members; of several, that of the first."""
    identities = Counter(map(_identity, members))
    return identities.most_common(1)[0][0] if identities else ""


async def expel_silent(
    rosters: Sequence[Roster], settings: ControllerSettings, watchdog: Watchdog
) -> None:
    """End the streams of processes that have been silent for too long, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        with watchdog.phase("the event loop"):
            await asyncio.sleep(settings.heartbeat_s)
        for member in (each for roster in rosters for each in roster.members):
            if member.heard_at < clock() - settings.lost_after_s:
                member.expel(ServiceLost(f"nothing was heard for {settings.lost_after_s:.1f} s"))
