"""Attached members by index, and which of them may hold rows."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from fullrank.common.deadlines import FACTOR
from fullrank.common.errors import ConfigError, NotFound, Overloaded, ServiceLost
from fullrank.common.types import LearnerId
from fullrank.config.tree import ControllerSettings
from fullrank.host.shared_memory import ReadBlock
from fullrank.net.limits import Silence
from fullrank.run.placement import Domain
from fullrank.runs.verdicts import Kind, Party, Verdicts
from fullrank_controller.membership.member import Member, Numerics, Origin, identity_of
from fullrank_controller.watchdog import Watchdog

DEFAULTS = ControllerSettings()
DEFAULT_ORIGIN = Origin()
STREAMS_PER_HOST, HOSTS = 256, 4
"""Learners that one network address admits, which bounds the indices that strangers make up; and
hosts' worth of learners that one certificate admits, or the lack of any."""
REMEDY = "give each learner a certificate of its own (fullrank certs init --learners)"
DEPARTED = 256
"""Learners that are remembered after they left, for verdicts on what they sent; more as long as the
iteration is open to which they contributed."""


class Roster:
    """Attached learners.

    An index is a lease: the lowest free one, until the stream ends, and if it has contributed to an
    iteration, until that one is applied: whoever an index of an iteration names is one learner.

    Args:
        verdicts: Those of the run, which bar learners from rows; the roster adds to them.
        settings: Silence after which a member counts as lost.
        role: Role of its members.

    Attributes:
        verdicts: As given.
        numerics: Numerics of the run, without which no learner holds a row; None until those of
            the first epoch's learners are taken.
        lost_rows: Rows that members held when they left.
    """

    def __init__(
        self,
        verdicts: Verdicts | None = None,
        settings: ControllerSettings = DEFAULTS,
        *,
        role: Literal["learner", "collector"] = "learner",
    ) -> None:
        self._settings, self._role = settings, role
        self.numerics: Numerics | None = None
        self.lost_rows = 0
        self.verdicts = Verdicts() if verdicts is None else verdicts
        self._departed: deque[_Stay] = deque()
        self._members: dict[LearnerId, Member] = {}
        self._leases: dict[bytes, Member] = {}
        self._drained: set[bytes] = set()
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
        earlier = _to_replace(self.members, origin, process)
        if earlier is not None:
            earlier.expel(ServiceLost("its process has dialled again"))
            self.leave(earlier)
        while len(self._departed) > DEPARTED and not self._departed[0].reaches(since):
            self._departed.popleft()
        held = self._members.keys() | self._in_doubt(process, since=since)
        learner = next(j for j in range(len(held) + 1) if j not in held)
        if wanted is not None and wanted < STREAMS_PER_HOST and wanted not in held:
            learner = wanted
        member = Member(
            learner=learner,
            host=host,
            role=self._role,
            heard_at=now,
            silence=Silence(self._settings, now=now),
            domain=domain,
            origin=origin,
            process=process,
            since=since,
        )
        member.quarantined = self.verdicts.against(member.party)
        member.drained = process in self._drained
        self._members[learner] = self._leases[member.lease] = member
        return member

    def _in_doubt(self, process: bytes, *, since: int) -> set[LearnerId]:
        """Indices under which other processes have contributed to the iteration that is open."""
        return {
            stay.party.learner
            for stay in self._departed
            if stay.reaches(since) and not (process and stay.party.process == process.hex())
        }

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

    def quarantine(
        self, learner: LearnerId, reason: str, *, iteration: int, kind: Kind = "convicted"
    ) -> None:
        """Assign no more rows to a learner whose contribution was wrong, also if it has left.

        Args:
            learner: Its index in that iteration; another holder of the index is left alone.
            reason: Why it is quarantined.
            iteration: Iteration of the contribution.
            kind: Kind of the verdict.
        """
        stay = self._stay_at(learner, iteration)
        if stay is not None:
            self._bar(stay.party, stay.member, reason, iteration=iteration, kind=kind)

    def convict(self, member: Member, reason: str, *, iteration: int) -> None:
        """Quarantine a member, also if it has left."""
        self._bar(member.party, member, reason, iteration=iteration, kind="convicted")
        member.quarantined = reason

    def _bar(
        self, party: Party, member: Member | None, reason: str, *, iteration: int, kind: Kind
    ) -> None:
        if self.verdicts.against(party) or (member is not None and member.quarantined):
            return
        verdict = self.verdicts.add(kind, reason, iteration=iteration, party=party)
        for other in self.members:
            if other is member or verdict.concerns(other.party):
                other.quarantined = reason
        self._notify()

    def named(self, learners: Iterable[LearnerId], *, at: int) -> str:
        """Name the learners that had some indices in an iteration, with what is known of them."""
        return "; ".join(map(str, self._parties(learners, at)))

    def suspect(self, learners: Iterable[LearnerId], reason: str, *, iteration: int) -> None:
        """Keep the names of learners of which one was wrong, for the status of a resumed run."""
        for party in self._parties(learners, iteration):
            self.verdicts.add("suspected", reason, iteration=iteration, party=party)

    def _parties(self, learners: Iterable[LearnerId], iteration: int) -> Iterator[Party]:
        for learner in sorted(learners):
            stay = self._stay_at(learner, iteration)
            yield stay.party if stay is not None else Party(learner=learner)

    def _stay_at(self, learner: LearnerId, iteration: int) -> "_Stay | None":
        """Whoever had an index and contributed to an iteration.

        Who left without having sent anything in it, or has sent nothing yet, is not blamed for it.
        """
        attached = map(_stay_of, self._members.values())
        return next(
            (
                stay
                for stay in (*self._departed, *attached)
                if stay.party.learner == learner
                and stay.contributed is not None
                and stay.contributed[0] <= iteration <= stay.contributed[1]
            ),
            None,
        )

    def drain(self, learner: LearnerId) -> None:
        """Assign no more rows to the process of a learner, on this stream or another.

        Raises:
            NotFound: There is no such learner.
            ConfigError: No other learner could compute.
        """
        member = self._members.get(learner)
        if member is None:
            raise NotFound(f"there is no learner {learner}; `fullrank run status` lists them")
        if all(other is member for other in self.eligible):
            raise ConfigError(f"no other learner can compute than {learner}; stop the run instead")
        member.drained = True
        if member.process:
            self._drained.add(member.process)
        self._notify()

    def leave(self, member: Member) -> None:
        """Forget a learner whose stream ended, but not who it was."""
        if self._members.get(member.learner) is member:
            del self._members[member.learner], self._leases[member.lease]
            if member.contributed is not None:
                self._departed.append(_stay_of(member)._replace(member=None))
            self._sent_by_departed.update(member.outbox.sent)
            self._notify()

    def contributes(self, learner: LearnerId, iteration: int) -> None:
        """Record that a learner, if it is attached, has sent a vector or a report."""
        if (member := self._members.get(learner)) is not None:
            member.contributes(iteration)

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
        ready = [member for member in ready if not member.drained]
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


class _Stay(NamedTuple):
    """The time for which a learner had its index."""

    party: Party
    contributed: tuple[int, int] | None
    """As of a member."""
    member: Member | None

    def reaches(self, iteration: int) -> bool:
        """Return whether it contributed to this iteration or a later one."""
        return self.contributed is not None and self.contributed[1] >= iteration


def _stay_of(member: Member) -> _Stay:
    return _Stay(member.party, member.contributed, member)


def _to_replace(members: Sequence[Member], origin: Origin, process: bytes) -> Member | None:
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
    if near >= STREAMS_PER_HOST:
        raise Overloaded(
            f"{near} learners are attached from {origin.address}, as many as one address "
            f"may have; {REMEDY}"
        )
    if len(alike) >= HOSTS * STREAMS_PER_HOST:
        certified = f"with the certificate of {origin.certificate}" if origin.certificate else ""
        raise Overloaded(
            f"{len(alike)} learners are attached {certified or 'without a certificate'}, {HOSTS} "
            f"times as many as one address may have; {REMEDY}"
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
    patience_s = max(FACTOR * latest_s, min(FACTOR * freshest_s, settings.deadline_s))
    return [
        (member, silent_s)
        for member, silent_s in silences
        if silent_s > max(patience_s, member.silence.limit_s)
    ]
