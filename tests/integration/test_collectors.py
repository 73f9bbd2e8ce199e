"""Collectors that play and die leave a keyed run as it is without collectors."""

from functools import partial
from pathlib import Path

import pytest
from tests.integration.cluster import Cluster
from tests.integration.collecting import ACTORS, SMALL, VALUES, alone, assigned, services, settings

from fullrank.v1 import controller_pb2 as pb
from fullrank.v1 import replay_pb2
from fullrank_replay.appends import StagedBlocks

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("overrides", "lag"),
    [((*VALUES, "audit.blocks=1.0"), 2), (ACTORS, 0)],
    ids=["qmix ahead, each block audited", "maddpg"],
)
async def test_a_run_with_collectors_is_bit_for_bit_that_without(
    tmp_path: Path, overrides: tuple[str, ...], lag: int
) -> None:
    chosen = (*overrides, f"collect.lag={lag}")
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        services(cluster)
        for _ in range(2):
            cluster.collector()
        status = await cluster.finished()
        assert not status.caveats
        assert sum(each.blocks for each in status.collectors) == status.blocks.played == 4 * 3
        assert all((each.block_s > 0.0) == (each.blocks > 0) for each in status.collectors)
        assert all(0.0 <= each.idle <= 1.0 for each in status.collectors)
        assert (status.blocks.reassigned, status.blocks.lost, status.playing) == (0, 0, "")
        assert {event.version for event in assigned(cluster)} == set(range(max(1, 4 - lag)))
        assert cluster.outcome() == alone(chosen)


async def test_collectors_that_die_change_no_bit(tmp_path: Path) -> None:
    """One is cut off at whatever it does, again and again, and another comes in its place."""
    chosen = (*VALUES, "iterations=6", "collect.lag=1")
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        services(cluster)
        cluster.collector()
        for committed in range(1, 5):
            victim = cluster.collector()
            await cluster.status_when(
                partial(_has_committed, committed), what=f"{committed} committed"
            )
            victim.stop.set()
            victim.task.cancel()
        await cluster.finished()
        assert cluster.outcome() == alone(chosen)


async def test_copies_in_processes_of_their_own_change_no_bit(tmp_path: Path) -> None:
    """A game of another package, whose copies step at the same time in each collector."""
    game = (
        "environment.name=mpe2.simple_spread_v3:parallel_env",
        "environment.max_cycles=6",
        "environment.copies=4",
        "algorithm.batch_size=16",
        "code.name=uncoded",
        "collectors.processes=true",
        "iterations=3",
    )
    chosen = (*SMALL, *game)
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        services(cluster)
        for _ in range(2):
            cluster.collector()
        status = await cluster.finished()
        assert (status.blocks.played, status.blocks.lost) == (3 * 2, 0)
        assert cluster.outcome() == alone(chosen)


async def test_a_controller_that_is_killed_is_followed_by_one_that_ends_with_the_same_bits(
    tmp_path: Path,
) -> None:
    chosen = (*VALUES, "iterations=6", "collect.lag=2", "checkpoint.every=4")
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        cluster.replay()
        controller = cluster.controller()
        cluster.learners(cluster.config.learners)
        for _ in range(2):
            cluster.collector()
        await cluster.status_when(partial(_has_committed, 3), what="three committed")
        await controller.end()
        cluster.controller()
        await cluster.finished()
        assert cluster.outcome() == alone(chosen)


async def test_a_replay_service_that_loses_staged_blocks_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of replay has neither grants nor blocks, each time an iteration is due."""
    accept, forgotten = StagedBlocks.accept, list[int]()

    async def forget_first(
        self: StagedBlocks, request: replay_pb2.AcceptBlocksRequest
    ) -> replay_pb2.AcceptBlocksResponse:
        if request.iteration not in forgotten:
            forgotten.append(request.iteration)
            self._staging.clear()
        return await accept(self, request)

    monkeypatch.setattr(StagedBlocks, "accept", forget_first)
    chosen = (*VALUES, "collect.lag=1")
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        services(cluster)
        for _ in range(2):
            cluster.collector()
        status = await cluster.finished()
        assert forgotten == [0, 1, 2, 3]
        assert status.blocks.played > 4 * 3
        assert not status.caveats
        assert cluster.outcome() == alone(chosen)


def _has_committed(least: int, status: pb.GetStatusResponse) -> bool:
    return status.iterations_committed >= least
