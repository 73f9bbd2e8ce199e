"""Streams never queue stale messages; rows are held by learners of the run's numerics alone."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import WAIT_S

from fullrank.common.errors import (
    ConfigError,
    DeadlinePassed,
    NotFound,
    Overloaded,
    ServiceLost,
    StaleTerm,
)
from fullrank.runs.verdicts import Verdicts, read_verdicts
from fullrank_controller.learners.outbox import EncodedAssignment, Outbox
from fullrank_controller.membership.member import Member, Numerics, Origin, excluded
from fullrank_controller.membership.roster import HOSTS, STREAMS_PER_HOST, Roster


class Peer:
    """A peer that takes one message for each permit."""

    def __init__(self) -> None:
        self.took: list[bytes] = []
        self._permits = asyncio.Semaphore(0)

    async def write(self, message: bytes) -> None:
        await self._permits.acquire()
        self.took.append(message)

    async def take(self, count: int) -> list[bytes]:
        """Permit ``count`` messages; returns all messages taken so far."""
        wanted = len(self.took) + count
        for _ in range(count):
            self._permits.release()
        async with asyncio.timeout(WAIT_S):
            while len(self.took) < wanted:
                await asyncio.sleep(0)
        return self.took


def encoded(*messages: bytes) -> EncodedAssignment:
    return [("parameters", message) for message in messages]


async def test_a_newer_assignment_replaces_one_that_was_not_begun() -> None:
    outbox, peer = Outbox(), Peer()
    outbox.assign(encoded(b"old 1", b"old 2"), deadline_s=WAIT_S)
    outbox.assign(encoded(b"new 1", b"new 2"), deadline_s=WAIT_S)
    draining = asyncio.create_task(outbox.drain(peer.write))
    assert await peer.take(2) == [b"new 1", b"new 2"]
    draining.cancel()


async def test_a_newer_assignment_replaces_the_rest_of_one_that_was_begun() -> None:
    outbox, peer = Outbox(), Peer()
    outbox.assign(encoded(b"old 1", b"old 2", b"old 3"), deadline_s=WAIT_S)
    draining = asyncio.create_task(outbox.drain(peer.write))
    await peer.take(1)  # "old 2" is being written now
    outbox.assign(encoded(b"new 1"), deadline_s=WAIT_S)
    assert await peer.take(2) == [b"old 1", b"old 2", b"new 1"]
    draining.cancel()


async def test_a_commit_drops_the_rest_of_the_assignment() -> None:
    outbox, peer = Outbox(), Peer()
    outbox.assign(encoded(b"1", b"2", b"3"), deadline_s=WAIT_S)
    draining = asyncio.create_task(outbox.drain(peer.write))
    await peer.take(1)
    outbox.commit(b"commit")
    assert await peer.take(2) == [b"1", b"2", b"commit"]
    outbox.assign(encoded(b"next"), deadline_s=WAIT_S)
    assert await peer.take(1) == [b"1", b"2", b"commit", b"next"]
    assert outbox.sent == {"parameters": 6, "commit": 6}
    draining.cancel()


async def test_a_refusal_goes_first_and_drops_nothing() -> None:
    outbox, peer = Outbox(), Peer()
    outbox.assign(encoded(b"1", b"2", b"3"), deadline_s=WAIT_S)
    draining = asyncio.create_task(outbox.drain(peer.write))
    await peer.take(1)
    outbox.refuse(b"refused")
    assert await peer.take(3) == [b"1", b"2", b"refused", b"3"]
    draining.cancel()


@pytest.mark.parametrize("notice", [False, True])
async def test_a_blocked_write_is_cut_at_the_deadline(notice: bool) -> None:
    outbox = Outbox()
    outbox.assign(encoded(b"1"), deadline_s=0.01)
    if notice:
        outbox.commit(b"commit")
    with pytest.raises(DeadlinePassed, match=r"took no message for 0\.0 s"):
        async with asyncio.timeout(WAIT_S):
            await outbox.drain(Peer().write)
    assert not outbox.sent


A = Numerics.of("a", [b"p"])


def ready(roster: Roster, member: Member, *, fingerprint: str = "a", stable: bool = True) -> None:
    roster.ready(member, numerics=Numerics.of(fingerprint, [b"p"]), stable=stable)


async def test_a_learner_gets_the_lowest_free_index() -> None:
    roster = Roster()
    members = [roster.join("host", now=0.0) for _ in range(3)]
    assert [member.learner for member in members] == [0, 1, 2]
    roster.leave(members[1])
    assert roster.join("host", now=0.0).learner == 1
    assert roster.join("host", now=0.0).learner == 3


async def test_a_container_gets_the_index_that_it_held_if_that_is_free() -> None:
    roster = Roster()
    wanted = (2, None, 2, 1, STREAMS_PER_HOST)
    indices = [roster.join("host", now=0.0, wanted=each).learner for each in wanted]
    assert indices == [2, 0, 1, 3, 4]


async def test_leaving_twice_does_not_free_the_index_of_a_successor() -> None:
    roster = Roster()
    old = roster.join("host", now=0.0)
    roster.leave(old)
    new = roster.join("host", now=0.0)
    roster.leave(old)
    assert roster.members == [new]


async def test_learners_of_other_numerics_are_spares_however_many_they_are() -> None:
    roster = Roster()
    roster.numerics = A
    members = [roster.join("host", now=0.0) for _ in range(5)]
    for member, fingerprint in zip(members, "abbab", strict=True):
        ready(roster, member, fingerprint=fingerprint)
    assert [member.learner for member in roster.eligible] == [0, 3]
    assert members[1].objection(roster.numerics).endswith(f"that of the run {A.identity}")
    other = Numerics.of("b", [b"p"]).identity
    assert f"3 have another numeric fingerprint than the run ({A.identity})" in excluded(
        roster.members, roster.numerics
    )
    assert excluded(roster.members, roster.numerics).endswith(f"set audit.fingerprint={other}")


async def test_before_a_run_has_numerics_those_of_most_learners_are_eligible() -> None:
    roster = Roster()
    members = [roster.join("host", now=0.0) for _ in range(5)]
    for member, fingerprint in zip(members, "abbab", strict=True):
        ready(roster, member, fingerprint=fingerprint)
    assert [member.learner for member in roster.eligible] == [1, 2, 4]
    assert not excluded(roster.members, roster.numerics)


async def test_equal_fingerprints_with_other_probes_are_other_numerics() -> None:
    roster = Roster()
    roster.numerics = A
    first, second, third = (roster.join("host", now=0.0) for _ in range(3))
    ready(roster, first)
    roster.ready(second, numerics=Numerics.of("a", [b"q"]), stable=True)
    ready(roster, third)
    assert roster.eligible == [first, third]


async def test_an_unstable_or_unready_learner_is_never_eligible() -> None:
    roster = Roster()
    unstable, unready = (roster.join("host", now=0.0) for _ in range(2))
    assert roster.eligible == []
    ready(roster, unstable, stable=False)
    assert roster.eligible == []
    assert unstable.objection(roster.numerics) == "its bits depend on what it computes together"
    assert (
        excluded(roster.members, roster.numerics)
        == "; the bits of 1 depend on what they compute together"
    )
    assert (roster.members, unready.objection(roster.numerics)) == ([unstable, unready], "")


BOUND = Origin(address="ipv4:10.0.0.7", certificate="fullrank://mine/learner/3", bound=True)
SHARED = Origin(address="ipv4:10.0.0.7", certificate="fullrank://mine/learner")


@pytest.mark.parametrize(
    ("origin", "process", "barred"),
    [
        (SHARED, b"liar", True),
        (SHARED, b"anew", False),
        (BOUND, b"liar", True),
        (BOUND, b"x", True),
    ],
    ids=["same process", "other process", "bound", "bound, other process"],
)
async def test_a_verdict_outlives_the_controller(
    tmp_path: Path, origin: Origin, process: bytes, barred: bool
) -> None:
    roster = Roster(Verdicts(tmp_path, term=1))
    liar = roster.join("node", now=0.0, process=b"liar", origin=origin)
    liar.contributes(4)
    roster.leave(liar)  # before it was found out
    roster.join("honest", now=0.0, process=b"honest", origin=SHARED, since=5)  # has its index now
    roster.quarantine(0, "its update was wrong", iteration=4)
    assert [member.quarantined for member in roster.members] == [""]
    assert roster.verdicts.take_quarantined() == (0,)
    assert roster.verdicts.take_quarantined() == ()
    resumed = Roster(Verdicts(tmp_path, term=1, resumes_at=4))
    again = resumed.join("node", now=0.0, process=process, origin=origin)
    assert again.quarantined == ("its update was wrong" if barred else "")
    assert resumed.verdicts.take_quarantined() == (0,)  # iteration 4 is committed again
    assert "learner 0 on node (ipv4:10.0.0.7, fullrank://mine/learner" in resumed.verdicts.lines[0]


@pytest.mark.parametrize("contributed", [True, False])
async def test_an_index_of_an_iteration_names_one_learner(*, contributed: bool) -> None:
    roster = Roster()
    first = roster.join("node", now=0.0, process=b"one", since=5)
    if contributed:
        first.contributes(5)
    roster.leave(first)
    second = roster.join("node", now=0.0, process=b"two", since=5)
    second.contributes(5)
    assert second.learner == contributed
    roster.quarantine(0, "it was wrong", iteration=5)
    assert bool(second.quarantined) != contributed
    roster.leave(second)
    again = roster.join("node", now=0.0, process=b"one", since=5)
    assert again.learner == (not contributed)
    assert bool(again.quarantined) == contributed


@pytest.mark.parametrize("since", [5, 6])
async def test_contributors_to_the_open_iteration_and_the_newest_to_others_are_remembered(
    monkeypatch: pytest.MonkeyPatch, *, since: int
) -> None:
    monkeypatch.setattr("fullrank_controller.membership.roster.DEPARTED", 2)
    roster = Roster()
    members = [roster.join("node", now=0.0, process=bytes([j]), since=5) for j in range(3)]
    for member in members:
        member.contributes(5)
        roster.leave(member)
    for _ in range(3):
        roster.leave(roster.join("node", now=0.0, since=since))
    assert roster.join("node", now=0.0, since=since).learner == (3 if since == 5 else 0)
    for member in members:
        roster.quarantine(member.learner, "it was wrong", iteration=5)
    assert roster.verdicts.take_quarantined() == ((0, 1, 2) if since == 5 else (1, 2))


async def test_an_index_is_given_again_after_the_iteration_to_which_its_holder_contributed() -> (
    None
):
    roster = Roster()
    first = roster.join("node", now=0.0, process=b"one", since=5)
    first.contributes(5)
    roster.leave(first)
    assert roster.join("node", now=0.0, process=b"two", since=6).learner == 0


async def test_nobody_is_blamed_for_an_iteration_before_he_joined() -> None:
    roster = Roster()
    member = roster.join("node", now=0.0, since=5)
    member.contributes(3)  # so it says
    member.contributes(6)
    roster.quarantine(0, "it was wrong", iteration=3)
    assert not member.quarantined


async def test_a_verdict_bars_its_learner_alone_and_a_suspicion_none() -> None:
    roster = Roster()
    liar, honest, suspect = (
        roster.join("node", now=0.0, process=each) for each in (b"", b"", b"s")
    )
    for member in roster.members:
        ready(roster, member)
        member.contributes(0)
    roster.suspect([suspect.learner], "one of two was wrong", iteration=0)
    roster.quarantine(liar.learner, "it was wrong", iteration=0)
    assert roster.eligible == [honest, suspect]
    roster.leave(suspect)
    assert not roster.join("node", now=0.0, process=b"s").quarantined
    assert not roster.join("node", now=0.0).quarantined


def taken() -> None:
    raise StaleTerm("a later controller has the directory")


async def test_a_superseded_controller_writes_no_verdict(tmp_path: Path) -> None:
    roster = Roster(Verdicts(tmp_path, term=1, confirm=taken))
    roster.join("node", now=0.0).contributes(0)
    with pytest.raises(StaleTerm):
        roster.quarantine(0, "it was wrong", iteration=0)
    assert not read_verdicts(tmp_path)


async def test_a_party_that_may_be_honest_is_admitted_again_as_another_process(
    tmp_path: Path,
) -> None:
    roster = Roster(Verdicts(tmp_path, term=1))
    roster.join("node", now=0.0, process=b"one", origin=BOUND).contributes(0)
    roster.quarantine(0, "its dispute is unsettled", iteration=0, kind="left out")
    resumed = Roster(Verdicts(tmp_path, term=1))
    assert resumed.join("node", now=0.0, process=b"one", origin=BOUND).quarantined
    resumed.leave(resumed.members[0])
    assert not resumed.join("node", now=0.0, process=b"two", origin=BOUND).quarantined


async def test_bytes_of_those_who_left_still_count() -> None:
    roster = Roster()
    first, second = (roster.join("host", now=0.0) for _ in range(2))
    first.outbox.sent["parameters"] = 3
    second.outbox.sent["parameters"] = 4
    roster.leave(first)
    assert roster.bytes_sent() == {"parameters": 7}


@pytest.mark.parametrize("change", [ready, Roster.leave])
async def test_joins_and_leaves_wake_the_waiting(
    change: Callable[[Roster, Member], None],
) -> None:
    roster = Roster()
    member = roster.join("host", now=0.0)
    waiting = asyncio.create_task(roster.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    change(roster, member)
    await asyncio.wait_for(waiting, WAIT_S)


async def test_the_first_reason_to_expel_counts() -> None:
    member = Roster().join("host", now=0.0)
    member.expel(ServiceLost("first"))
    member.expel(ServiceLost("second"))
    with pytest.raises(ServiceLost, match="first"):
        await member.expelled


async def test_streams_of_one_host_or_certificate_are_bounded_and_others_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fullrank_controller.membership.roster.STREAMS_PER_HOST", 1)
    roster = Roster()

    def join(address: str) -> Member:
        origin = Origin(address=address, certificate="fullrank://run/learner")
        return roster.join("host", now=0.0, origin=origin)

    first = join("10.0.0.1")
    with pytest.raises(Overloaded, match=r"from 10\.0\.0\.1, as many as .* certificate of its own"):
        join("10.0.0.1")
    for host in range(2, 1 + HOSTS):
        join(f"10.0.0.{host}")
    with pytest.raises(Overloaded, match=r"fullrank://run/learner, 4 times as many as .* its own"):
        join("10.0.0.9")
    roster.leave(first)
    join("10.0.0.1")


async def test_a_certificate_of_one_learner_admits_one_process_that_may_dial_again() -> None:
    roster = Roster()
    own = Origin(address="a", certificate="fullrank://run/learner/1", bound=True)
    member = roster.join("host", now=0.0, process=b"own", origin=own)
    with pytest.raises(Overloaded, match="learner/1 is in use by another process on host"):
        roster.join("thief", now=0.0, process=b"thief", origin=own)
    again = roster.join("host", now=1.0, process=b"own", origin=own)
    assert roster.members == [again]
    with pytest.raises(ServiceLost, match="dialled again"):
        await member.expelled


async def test_a_drained_process_holds_no_row_on_any_stream() -> None:
    roster, numerics = Roster(), Numerics.of("a", [b"p"])
    members = [roster.join("host", now=0.0, process=bytes([number])) for number in range(2)]
    for member in members:
        roster.ready(member, numerics=numerics, stable=True)
    drained, other = members
    roster.drain(0)
    assert roster.eligible == [other]
    assert drained.objection(numerics) == "an administrator has drained it"
    assert excluded(roster.members, numerics) == ""
    with pytest.raises(ConfigError, match="no other learner can compute than 1"):
        roster.drain(1)
    with pytest.raises(NotFound, match="there is no learner 2"):
        roster.drain(2)
    roster.leave(drained)
    again = roster.join("host", now=0.0, process=drained.process)
    fresh = roster.join("host", now=0.0, process=b"fresh")
    for member in (again, fresh):
        roster.ready(member, numerics=numerics, stable=True)
    assert set(roster.eligible) == {other, fresh}
    early = roster.join("host", now=0.0)
    roster.drain(early.learner)
    assert early.objection(None) == "an administrator has drained it"
