"""Network failures restart no service, commit nothing twice and change no bit."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.fakes import Fault
from tests.faultlab.fault_proxy import Direction, FaultProxy
from tests.faultlab.fault_proxy import NetworkFault as Failure
from tests.integration.cluster import Cluster, Service, reference_digests, resolved
from tests.waiting import eventually

from fullrank.host.run_directory import resolve

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")
ANYWHERE = "127.0.0.1:0"
ATTENTIVE = ("controller.heartbeat_s=0.2", "controller.lost_after_s=6.0")
"""Limit on silence; a busy machine may delay a heartbeat for seconds."""

FAILURES: dict[str, Failure] = {
    "cut": FaultProxy.cut,
    "half-open": FaultProxy.strand,
    "requests do not pass": lambda proxy: proxy.up.hold(),
    "answers do not pass": lambda proxy: proxy.down.hold(),
}


def learner_behind(cluster: Cluster, proxy: FaultProxy, *settings: str) -> Service:
    """A learner that dials the controller through the proxy."""
    dialled = resolved(*settings, f"controller.address={proxy.address}")
    launch = replace(cluster.launch, resolved=dialled)
    return cluster.attached(launch)


@pytest.mark.parametrize(
    "failure",
    ["cut", "answers do not pass", pytest.param("half-open", marks=pytest.mark.thorough)],
)
async def test_a_run_goes_on_when_replay_can_be_reached_again(tmp_path: Path, failure: str) -> None:
    async with FaultProxy(partial(resolve, ANYWHERE, tmp_path, "replay")) as proxy:
        settings = (*UNCODED, f"replay.listen={ANYWHERE}", f"replay.address={proxy.address}")
        async with Cluster(tmp_path, resolved(*settings)) as cluster:
            cluster.serve()
            slow, _ = await cluster.fake(Fault.STALL, at=2)
            cluster.learners(2)
            await eventually(slow.assigned.is_set, what="the third round is open")
            FAILURES[failure](proxy)
            before = proxy.disrupted
            slow.release.set()  # when the round ends, the next one needs replay
            await eventually(lambda: proxy.disrupted > before, what="replay is asked")
            proxy.heal()
            status = await cluster.finished()
        assert status.term == 1
        assert [record.iteration for record in cluster.records()] == [0, 1, 2, 3]
        assert cluster.digests() == reference_digests(cluster.config)


@pytest.mark.parametrize("failure", ["cut", "requests do not pass"])
async def test_learners_beyond_the_tolerance_that_were_cut_off_take_part_again(
    tmp_path: Path, failure: str
) -> None:
    """The run has no end of its own: it goes on until all three learners share the rows again."""
    settings = (*UNCODED, *ATTENTIVE, "iterations=100000", "compute.emulate_unit_s=0.05")
    async with Cluster(tmp_path, resolved(*settings)) as cluster:
        cluster.serve()
        await cluster.address()

        def took_part() -> int:
            return max((len(record.received) for record in cluster.records()[-1:]), default=0)

        async with FaultProxy(partial(resolve, ANYWHERE, tmp_path, "controller")) as proxy:
            cluster.learner()
            for _ in range(2):
                learner_behind(cluster, proxy, *settings)
            await eventually(lambda: took_part() == 3, what="three learners")
            FAILURES[failure](proxy)
            await eventually(lambda: took_part() == 1, what="one learner goes on alone")
            proxy.heal()
            await eventually(lambda: took_part() == 3, what="all three take part again")
    records = cluster.records()
    assert {record.term for record in records} == {1}
    assert [record.iteration for record in records] == list(range(len(records)))
    reference = resolved(*settings, f"iterations={len(records)}").config
    assert cluster.digests() == reference_digests(reference)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(FaultProxy.strand, id="half-open"),
        pytest.param(
            lambda proxy: proxy.throttle(1.0), id="a byte a second", marks=pytest.mark.thorough
        ),
    ],
)
async def test_a_learner_whose_line_all_but_fails_holds_up_no_round_and_loses_its_index(
    tmp_path: Path, failure: Failure
) -> None:
    settings = ("code.name=cyclic", "learners=4", *ATTENTIVE, "compute.emulate_unit_s=0.05")
    async with Cluster(tmp_path, resolved(*settings, "iterations=8")) as cluster:
        cluster.serve()
        await cluster.address()
        async with FaultProxy(partial(resolve, ANYWHERE, tmp_path, "controller")) as proxy:
            victim = learner_behind(cluster, proxy, *settings)
            [lost] = [each.learner for each in (await cluster.ready(1)).learners]
            cluster.learners(3)
            await eventually(lambda: len(cluster.records()) > 1, what="two iterations")
            failure(proxy)
            victim.stop.set()
            await cluster.status_when(
                lambda status: lost not in [each.learner for each in status.learners],
                what="its index is free",
            )
            cluster.learner()
            await cluster.status_when(
                lambda status: lost in [each.learner for each in status.learners],
                what="a newcomer has it",
            )
            await cluster.finished()
    records = cluster.records()
    assert all(record.attempt == 0 for record in records)  # no row was reassigned
    assert cluster.digests() == reference_digests(cluster.config)


async def test_slow_and_unsteady_lines_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are delayed by 30 to 70 ms in either direction."""
    travel, delayed = Direction.travel, Counter[float]()

    async def counted(direction: Direction, size: int) -> None:
        delayed[direction.delay_s] += 1
        await travel(direction, size)

    monkeypatch.setattr(Direction, "travel", counted)
    async with (
        FaultProxy(partial(resolve, ANYWHERE, tmp_path, "replay")) as to_replay,
        FaultProxy(partial(resolve, ANYWHERE, tmp_path, "controller")) as to_controller,
    ):
        for line in (to_replay, to_controller):
            line.delay(0.05, jitter_s=0.02)
        settings = (*UNCODED, f"replay.listen={ANYWHERE}", f"replay.address={to_replay.address}")
        async with Cluster(tmp_path, resolved(*settings)) as cluster:
            cluster.serve()
            await cluster.address()
            for _ in range(3):
                learner_behind(cluster, to_controller, *settings)
            status = await cluster.finished()
    assert (status.term, len(status.learners)) == (1, 3)
    assert delayed[0.05] >= 2 * 3 * cluster.config.iterations  # there and back, each learner
    assert cluster.digests() == reference_digests(cluster.config)
