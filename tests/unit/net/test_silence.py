"""The limit of a peer's silence follows its heartbeats: a starved host is not a dead one."""

import asyncio
from collections.abc import Sequence

from tests.faultlab.simulation.virtual_loop import VirtualLoop

from fullrank.common.deadlines import FACTOR
from fullrank.common.errors import ServiceLost
from fullrank.config.tree import ControllerSettings
from fullrank.net.limits import Silence
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster, expel_silent

SETTINGS = ControllerSettings()
STARVED_S = 10 * SETTINGS.heartbeat_s
"""Interval of the heartbeats of a host that is ten times as slow."""


class Watch:
    """The watchdog of a loop in virtual time, which sees nothing."""

    def phase(self, _: str) -> "Watch":
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Host:
    """Attached learners whose heartbeats come at an interval that may change."""

    def __init__(self, roster: Roster, learners: int) -> None:
        self.interval_s = SETTINGS.heartbeat_s
        self._roster = roster
        now = asyncio.get_running_loop().time()
        self.members = [roster.join("host", now=now) for _ in range(learners)]
        self._beats = [asyncio.create_task(self._beat(member)) for member in self.members]

    async def _beat(self, member: Member) -> None:
        await asyncio.sleep(self.interval_s * member.learner / 4)  # not all at once
        while True:
            await asyncio.sleep(self.interval_s)
            self._roster.heard(member.lease, now=asyncio.get_running_loop().time())

    def die(self, number: int) -> None:
        """End the heartbeats of a learner, whose connection stays."""
        self._beats[number].cancel()


def expelled(members: Sequence[Member]) -> list[int]:
    found = []
    for member in members:
        if member.expelled.done():
            assert isinstance(member.expelled.exception(), ServiceLost)
            found.append(member.learner)
    return found


def virtually(scenario: "asyncio._CoroutineLike[None]") -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def watching(roster: Roster) -> "asyncio.Task[None]":
    return asyncio.create_task(expel_silent([roster], SETTINGS, Watch()))  # type: ignore[arg-type]


def test_a_host_that_is_slow_from_the_start_loses_no_learner() -> None:
    async def scenario() -> None:
        roster = Roster(settings=SETTINGS)
        quick, slow = Host(roster, 3), Host(roster, 1)
        slow.interval_s = STARVED_S
        watcher = watching(roster)
        await asyncio.sleep(100 * STARVED_S)
        assert expelled([*quick.members, *slow.members]) == []
        watcher.cancel()

    virtually(scenario())


def test_a_host_that_becomes_slow_loses_no_learner() -> None:
    async def scenario() -> None:
        roster = Roster(settings=SETTINGS)
        host = Host(roster, 4)
        watcher = watching(roster)
        for interval_s in (SETTINGS.heartbeat_s, STARVED_S, SETTINGS.heartbeat_s, STARVED_S):
            host.interval_s = interval_s
            await asyncio.sleep(100 * interval_s)
        assert expelled(host.members) == []
        watcher.cancel()

    virtually(scenario())


def test_a_dead_learner_is_expelled_alone_within_its_limit() -> None:
    async def scenario() -> None:
        roster = Roster(settings=SETTINGS)
        host = Host(roster, 4)
        watcher = watching(roster)
        await asyncio.sleep(100 * SETTINGS.heartbeat_s)
        host.die(1)
        await asyncio.sleep(SETTINGS.lost_after_s + 2 * SETTINGS.heartbeat_s)
        assert expelled(host.members) == [1]
        watcher.cancel()

    virtually(scenario())


def test_learners_that_all_die_are_expelled_after_the_deadline_of_the_first_rounds() -> None:
    async def scenario() -> None:
        roster = Roster(settings=SETTINGS)
        host = Host(roster, 2)
        watcher = watching(roster)
        await asyncio.sleep(100 * SETTINGS.heartbeat_s)
        host.die(0)
        host.die(1)
        await asyncio.sleep(SETTINGS.deadline_s + 2 * SETTINGS.heartbeat_s)
        assert expelled(host.members) == [0, 1]
        watcher.cancel()

    virtually(scenario())


def test_the_limit_follows_the_intervals_and_has_a_floor() -> None:
    silence = Silence(SETTINGS, now=0.0)
    assert silence.limit_s == SETTINGS.deadline_s
    for beat in range(1, 21):
        silence.heard(now=beat * SETTINGS.heartbeat_s)
    assert silence.limit_s == SETTINGS.lost_after_s
    now = 20 * SETTINGS.heartbeat_s
    for beat in range(1, 65):
        silence.heard(now=now + beat * STARVED_S)
    assert silence.limit_s == FACTOR * STARVED_S
