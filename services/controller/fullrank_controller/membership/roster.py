"""Attached members by index, and which of them may hold rows."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from fullrank.common.errors import Overloaded, ServiceLost
from fullrank.common.types import LearnerId
from fullrank.config.tree import ControllerSettings
from fullrank.rpc.shared_memory import ReadBlock
from fullrank.rpc.silence import Silence
from fullrank_controller.membership.member import Member, Numerics, Origin, identity_of
from fullrank_controller.membership.placement import Domain
from fullrank_controller.watchdog import Watchdog

DEFAULTS = ControllerSettings()
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
        wanted: LearnerId | None = None,
    ) -> Member:
        """Admit a learner that said Hello, at the index it wants if that is free.

        Raises:
            Overloaded: Too many streams of its origin are attached.
        """
        earlier = _to_replace(self.members, origin, process, self._settings)
        if earlier is not None:
            earlier.expel(ServiceLost("its process has dialled again"))
            self.leave(earlier)
        free = next(j for j in range(len(self._members) + 1) if j not in self._members)
        most = self._settings.streams_per_host  # bounds the indices that strangers make up
        learner = free
        if wanted is not None and wanted < most and wanted not in self._members:
            learner = wanted
        member = Member(
            learner=learner,
            host=host,
            heard_at=now,
            silence=Silence(self._settings, now=now),
            domain=domain,
            origin=origin,
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
            member.silence.heard(now=now)
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
        wanted = identity_of(self.numerics) or _commonest(ready)
        return [member for member in ready if member.identity == wanted]

    def bytes_sent(self) -> Counter[str]:
        """Bytes written to all streams so far, by kind."""
        sent = self._sent_by_departed.copy()
        for member in self.members:
            sent.update(member.outbox.sent)
        return sent

    async def changed(self) -> None:
        """Return at the next join, readiness, quarantine or leave."""
        await self._change.wait()

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _to_replace(
    members: Sequence[Member], origin: Origin, process: bytes, settings: ControllerSettings
) -> Member | None:
    """The member that a new stream of this origin replaces: one of its bound certificate was cut.

    Raises:
        Overloaded: There is no room for the stream.
    """
    alike = [member for member in members if member.origin.certificate == origin.certificate]
    if origin.bound:
        for member in alike:
            if member.process != process:
                raise Overloaded(
                    f"the certificate of {origin.certificate} is in use by another process on "
                    f"{member.host}, and admits one stream"
                )
        return alike[0] if alike else None
    near = sum(member.origin.address == origin.address for member in members)
    if near >= settings.streams_per_host:
        raise Overloaded(
            f"{near} learners are attached from {origin.address}, as many as "
            "controller.streams_per_host admits"
        )
    if len(alike) >= settings.streams_per_certificate:
        certified = f"with the certificate of {origin.certificate}" if origin.certificate else ""
        raise Overloaded(
            f"{len(alike)} learners are attached {certified or 'without a certificate'}, as many "
            "as controller.streams_per_certificate admits"
        )
    return None


def _commonest(members: Sequence[Member]) -> str:
    """The identity of most members; of several, that of the first."""
    identities = Counter(member.identity for member in members)
    return identities.most_common(1)[0][0] if identities else ""


async def expel_silent(
    rosters: Sequence[Roster], settings: ControllerSettings, watchdog: Watchdog
) -> None:
    """End the streams of processes that have been silent for too long, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        with watchdog.phase("the event loop"):
            await asyncio.sleep(settings.heartbeat_s)
        for roster in rosters:
            for member, silent_s in lost(roster.members, settings, now=clock()):
                member.expel(ServiceLost(f"nothing was heard for {silent_s:.1f} s"))


def lost(
    members: Sequence[Member], settings: ControllerSettings, *, now: float
) -> list[tuple[Member, float]]:
    """The members that are silent beyond their limits, each with its silence in seconds.

    Where heartbeats of some come late, those of others may, too: a host, this one or the network is
    starved. So limits follow the longest latest interval, and the silence of the member that was
    heard last; but where all are silent, no longer than the deadline of the first rounds.
    """
    silences = [(member, now - member.heard_at) for member in members]
    latest_s = max((member.silence.latest_s for member in members), default=0.0)
    freshest_s = min((silent_s for _, silent_s in silences), default=0.0)
    factor = settings.deadline_factor
    patience_s = max(factor * latest_s, min(factor * freshest_s, settings.deadline_s))
    return [
        (member, silent_s)
        for member, silent_s in silences
        if silent_s > max(patience_s, member.silence.limit_s)
    ]
