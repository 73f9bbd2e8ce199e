"""Free collection: blocks are accepted when they come, and the run is a function of the table."""

import asyncio
import re
import threading
from collections.abc import Callable
from itertools import chain, count, repeat
from pathlib import Path

import numpy as np
import pytest
from tests.integration.cluster import Cluster, Service
from tests.integration.collecting import ACTORS, VALUES, Lying, settings
from tests.waiting import WAIT_S

from fullrank.audit.proof import blocks_in
from fullrank.cli.verify import verify
from fullrank.common.errors import ConfigError, Corrupted, EnvironmentFailed, Stuck
from fullrank.local import LocalRun
from fullrank.replay.mapped_table import TableFile
from fullrank.replay.staging import AcceptedBlock, rows_digest
from fullrank.replay.store import table_file
from fullrank.runs.identity import JOURNAL, run_of
from fullrank.runs.journal import read
from fullrank.runs.snapshot import REPLAY
from fullrank.training.block_player import BlockPlayer, PlayedBlock, PlayTerms, published
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1 import replay_pb2
from fullrank.wiring.plugins import algorithm_of
from fullrank.wiring.training import block_player_of
from fullrank_collector import run_context
from fullrank_replay.appends import StagedBlocks

pytestmark = pytest.mark.integration

ITERATIONS, MAX_LAG = 8, 3
FREE = (
    "collect.mode=free",
    "collect.warmup_episodes=12",
    "collect.window=10",
    f"collect.max_lag={MAX_LAG}",
    f"iterations={ITERATIONS}",
    "checkpoint.every=3",
    "checkpoint.keep=9",
)
QMIX = (*VALUES, *FREE)
TEAMS = {
    "prioritised": (*QMIX, "sampling.method=prioritised", "algorithm.td_errors=true"),
    "maddpg": (*ACTORS, *FREE),
}


def services(cluster: Cluster, *, collectors: int = 2) -> Service:
    """Start all; returns the controller."""
    cluster.replay()
    controller = cluster.controller()
    cluster.learners(cluster.config.learners)
    for _ in range(collectors):
        cluster.collector()
    return controller


def table_of(run_dir: Path) -> Path:
    return table_file(run_dir / REPLAY, run_of(run_dir))


def held(run_dir: Path) -> list[AcceptedBlock]:
    """The blocks of all committed iterations, which fill the table up to the last draw."""
    blocks = [block for entry in read(run_dir / JOURNAL, first=0) for block in blocks_in(entry)]
    assert len({(block.term, block.block) for block in blocks}) == len(blocks)
    table, first = TableFile(table_of(run_dir)), 0
    for block in blocks:
        assert table.digest(first, first + block.rows) == block.digest
        first += block.rows
    return blocks


def verified(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> str:
    verify(str(run_dir))
    return capsys.readouterr().out


async def trained(cluster: Cluster) -> None:
    await cluster.finished()
    for service in cluster.services:
        await service.end()


def _assert_young(cluster: Cluster) -> None:
    for record in cluster.records():
        lag = record.statistics["lag_max"]
        assert lag is not None
        assert lag <= MAX_LAG


@pytest.mark.parametrize("team", TEAMS)
async def test_a_free_run_is_recomputed_and_its_blocks_are_held_once(
    team: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path, settings(*TEAMS[team])) as cluster:
        services(cluster)
        await trained(cluster)
        _assert_young(cluster)
        assert sum(block.episodes for block in held(tmp_path)) >= 12 + 5 * (ITERATIONS - 1)
        records = cluster.records()
        assert any(record.return_mean is not None for record in records)
        said = verified(tmp_path, capsys)
        assert f"{ITERATIONS} committed iterations recomputed, 0 to {ITERATIONS - 1}: " in said


async def test_a_block_follows_from_its_version_its_term_and_its_number(tmp_path: Path) -> None:
    """Blocks of version 0 are played again, from the configuration alone."""
    async with Cluster(tmp_path, settings(*QMIX)) as cluster:
        services(cluster)
        await trained(cluster)
        config = cluster.config
    made = LocalRun(settings(*VALUES, "collectors.count=0").config, coded=False).training
    player = block_player_of(config, made.environment)
    initial = algorithm_of(config, made.environment)
    play = PlayTerms(publication=published(initial, 0), env_steps=0)
    played = [block for block in held(tmp_path) if not block.version]
    assert sum(block.episodes for block in played) >= 12
    for block in played:
        again = player.play(BlockKey(block.term, block.block), play)
        assert rows_digest(again.rows).hex() == block.digest
    player.close()
    made.collector.close()


async def test_a_flipped_bit_in_a_row_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path, settings(*QMIX)) as cluster:
        services(cluster)
        await trained(cluster)
    path = table_of(tmp_path)
    content = bytearray(path.read_bytes())
    table = TableFile(path)
    last = held(tmp_path)[0].rows - 1
    row = table._reader.gather(np.array([last]))
    content[content.index(row.tobytes()) + 4] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corrupted, match=rf"position {last}\b"):
        verified(tmp_path, capsys)


async def test_services_that_end_and_come_back_lose_no_block_that_an_iteration_could_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path, settings(*QMIX)) as cluster:
        controller = services(cluster)
        await cluster.status_when(lambda status: status.iterations_committed >= 3, what="three")
        before, digests = held(tmp_path), cluster.digests()[:3]
        await controller.end()
        cluster.controller()
        await trained(cluster)
        _assert_young(cluster)
        assert held(tmp_path)[: len(before)] == before
        assert cluster.digests()[:3] == digests
        assert f"{ITERATIONS} committed iterations" in verified(tmp_path, capsys)


async def test_a_replay_service_that_loses_staged_blocks_loses_no_accepted_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of replay has neither grants nor blocks, at some of the blocks that are due.

    It is not so for ever: blocks that are open at the same time would lose their grants in turn.
    """
    accept, due = StagedBlocks.accept, count()

    async def forget_some(
        self: StagedBlocks, request: replay_pb2.AcceptBlocksRequest
    ) -> replay_pb2.AcceptBlocksResponse:
        if next(due) in (0, 3, 6, 15):
            self._staging.clear()
        return await accept(self, request)

    monkeypatch.setattr(StagedBlocks, "accept", forget_some)
    async with Cluster(tmp_path, settings(*QMIX)) as cluster:
        services(cluster)
        played = (await cluster.finished()).blocks.played
        await trained(cluster)
        blocks = held(tmp_path)
        assert sum(block.episodes for block in blocks) >= 12 + 5 * (ITERATIONS - 1)
        assert played >= len(blocks) + 4
        assert f"{ITERATIONS} committed iterations" in verified(tmp_path, capsys)


class Failing:
    """Replaces ``BlockPlayer.play``: what one process plays raises, hangs or is a lie."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, fault: Callable[[PlayedBlock], PlayedBlock]
    ) -> None:
        self._player: BlockPlayer | None = None
        monkeypatch.setattr("fullrank_collector.server.GOODBYE_S", WAIT_S)
        play = BlockPlayer.play

        def failing(player: BlockPlayer, key: BlockKey, what: PlayTerms) -> PlayedBlock:
            self._player = self._player or player
            played = play(player, key, what)
            return fault(played) if player is self._player else played

        monkeypatch.setattr(BlockPlayer, "play", failing)


def names(reason: str) -> Callable[[pb.GetStatusResponse], bool]:
    """Whether a status names a collector that failed for this reason."""
    return lambda status: any(reason in caveat for caveat in status.caveats)


def _raise(_: PlayedBlock) -> PlayedBlock:
    raise EnvironmentFailed("the game is gone")


def _lie(played: PlayedBlock) -> PlayedBlock:
    rows = played.rows.copy()
    rows[0, 0] = np.nan
    return played._replace(rows=rows)


FAULTS: dict[str, tuple[Callable[[PlayedBlock], PlayedBlock], str]] = {
    "raises": (_raise, "the game is gone"),
    "lies": (_lie, "rows[0][0] is nan, which is not finite"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_environment_that_fails_costs_its_collector_alone_and_is_named(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, reason = FAULTS[fault]
    Failing(monkeypatch, act)
    async with Cluster(tmp_path, settings(*QMIX)) as cluster:
        cluster.serve(cluster.config.learners)
        bad = cluster.collector()
        with pytest.raises(EnvironmentFailed, match=re.escape(reason)):
            await asyncio.wait_for(bad.task, WAIT_S)
        cluster.services.remove(bad)
        await cluster.status_when(names(reason), what="it is named")
        cluster.collector()
        assert names(reason)(await cluster.finished())


async def test_a_collector_that_passes_other_episodes_off_as_its_block_is_convicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying = Lying(monkeypatch)
    async with Cluster(tmp_path, settings(*QMIX, "audit.blocks=1.0")) as cluster:
        services(cluster, collectors=1)
        status = await cluster.status_when(lambda status: bool(status.verdicts), what="a verdict")
        assert re.search(r"collector 0 on .*block \d+ of term 1, played again", status.verdicts[0])
        cluster.collector()
        status = await cluster.finished()
        assert (len(status.verdicts), list(status.caveats)) == (1, [])
        await trained(cluster)
    (lie,) = lying.lies
    assert lie not in {block.digest for block in held(tmp_path)}


async def test_an_environment_that_hangs_ends_its_collector_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hang(played: PlayedBlock) -> PlayedBlock:
        release.wait(2 * WAIT_S)
        return played

    def end(error: Stuck) -> None:
        release.set()
        raise error

    Failing(monkeypatch, hang)
    monkeypatch.setattr("fullrank_collector.server.end_process", end)
    limits = chain([0.2], repeat(float(WAIT_S)))
    monkeypatch.setattr(run_context, "limit_s", lambda *_, **__: next(limits))
    async with Cluster(tmp_path, settings(*QMIX)) as cluster:
        cluster.serve(cluster.config.learners)
        bad = cluster.collector()
        with pytest.raises(Stuck, match=r"it hangs for 0\.2 s"):
            await asyncio.wait_for(bad.task, WAIT_S)
        cluster.services.remove(bad)
        await cluster.status_when(names("it hangs for 0.2 s"), what="it is named")
        cluster.collector()
        assert names("it hangs for 0.2 s")(await cluster.finished())


async def test_a_run_whose_collectors_are_gone_says_so_and_goes_on_with_others(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, settings(*QMIX)) as cluster:
        services(cluster, collectors=0)
        await cluster.status_when(
            lambda status: status.state == pb.RUN_STATE_STALLED, what="a stall"
        )
        status = await cluster.status_when(lambda status: bool(status.message), what="a reason")
        assert "waiting for 12 episodes: no collector plays" in status.message
        cluster.collector()
        await cluster.finished()


def test_free_collection_needs_services_and_collectors() -> None:
    with pytest.raises(ConfigError, match="needs services"):
        LocalRun(settings(*QMIX).config)
    for wrong, message in (
        ("collectors.count=0", "needs collectors"),
        ("collect.lag=1", "collect.max_lag bounds it"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings(*QMIX, wrong)
