"""Collectors that lie, flood or have other numerics change no bit, and memory stays bounded."""

import asyncio
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.fakes import Fault
from tests.integration.cluster import Cluster
from tests.integration.collecting import (
    VALUES,
    FakeCollector,
    Lying,
    alone,
    no_block,
    ready_of,
    services,
    settings,
)
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import InvalidContribution
from fullrank.local import LocalRun
from fullrank.replay.staging import rows_digest
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.keyed_pool import KeyedPool

pytestmark = pytest.mark.integration


async def test_a_collector_of_other_numerics_stays_spare_and_the_status_says_why(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, settings(*VALUES)) as cluster:
        services(cluster)
        fake = FakeCollector(cluster, pb.Ready(fingerprint="another", probe=[b"x"], stable=True))
        spare = asyncio.create_task(fake.run(no_block))
        status = await cluster.status_when(
            lambda status: any(each.spare for each in status.collectors), what="a spare"
        )
        assert "its numeric fingerprint is" in status.collectors[0].spare
        await cluster.status_when(
            lambda status: "waits for a collector" in status.message, what="a stall"
        )
        cluster.collector()
        await cluster.finished()
        spare.cancel()
        assert cluster.outcome() == alone(VALUES)


def lie_about(play: pb.Play, *, row_size: int, **wrong: Any) -> list[bytes]:
    """A report on one-step episodes that no collector played or staged, with wrong fields."""
    copies = 2 if play.block < 2 else 1
    rows = np.zeros((2 * copies, row_size), np.float32)
    fields: dict[str, Any] = {
        "iteration": play.iteration,
        "block": play.block,
        "rows": len(rows),
        "earned": [0.0] * (3 * copies),
        "won": [False] * copies,
        "lengths": [1] * copies,
        "digest": rows_digest(rows),
        "staged": True,
    }
    return [pb.CollectorMessage(played=pb.Played(**fields | wrong)).SerializeToString()]


BAD = {
    "block": (7, "played.block is 7 of 3"),
    "earned": ([1.0], "played.earned has 1 entries"),
    "won": ([True], "played.won has 1 entries"),
    "lengths": ([1, 0], "played.lengths has 2 entries, expected 2 above 0"),
    "rows": (2**40, "played.rows is 1099511627776, expected 4"),
    "playing_s": (float("nan"), "is not a duration"),
    "digest": (b"x", "played.digest has 1 bytes"),
    "staged": (True, "no rows of its digest are staged for block 0 of iteration 0"),
    "iteration": (3, "block 0 of iteration 3 was not assigned to this collector"),
}


async def test_bad_blocks_are_refused_by_field_and_nothing_is_stored(tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings(*VALUES)) as cluster:
        services(cluster)
        run = LocalRun(cluster.config, coded=False)
        row_size, numerics = run.training.collector.layout.row_size, ready_of(cluster)
        for name, (value, message) in BAD.items():
            fake, wrong = FakeCollector(cluster, numerics), {name: value}

            async def answer(play: pb.Play, wrong: Any = wrong) -> list[bytes]:
                return lie_about(play, row_size=row_size, **wrong)

            with pytest.raises(InvalidContribution, match=message):
                await asyncio.wait_for(fake.run(answer), WAIT_S)
        cluster.collector()
        await cluster.finished()
        assert cluster.outcome() == alone(VALUES)


async def test_two_collectors_that_play_one_block_differently_are_named(tmp_path: Path) -> None:
    """The liar answers last, so that the run keeps its bits."""
    overrides = ("controller.deadline_s=0.5", "iterations=2")
    chosen = (*VALUES, *overrides)
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        services(cluster)
        run = LocalRun(cluster.config, coded=False)
        row_size, numerics = run.training.collector.layout.row_size, ready_of(cluster)
        asked: list[pb.Play] = []
        truth = asyncio.Event()

        async def lie(play: pb.Play) -> list[bytes]:
            asked.append(play)
            await (truth.wait() if len(asked) == 1 else asyncio.Event().wait())
            return lie_about(play, row_size=row_size)

        liar = asyncio.create_task(FakeCollector(cluster, numerics).run(lie))
        await eventually(lambda: bool(asked), what="the liar is assigned a block")
        cluster.collector()
        await cluster.status_when(lambda status: status.iterations_committed > 0, what="the truth")
        truth.set()
        status = await cluster.status_when(lambda status: bool(status.caveats), what="a caveat")
        assert "played block 0 of iteration 0 differently" in status.caveats[0]
        await cluster.finished()
        liar.cancel()
        assert cluster.outcome() == alone(chosen)


async def test_a_collector_that_passes_other_episodes_off_as_its_block_is_convicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying, chosen = Lying(monkeypatch), (*VALUES, "collect.lag=1", "audit.blocks=1.0")
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        services(cluster)
        cluster.collector()
        status = await cluster.status_when(lambda status: bool(status.verdicts), what="a verdict")
        assert len(lying.lies) == 1
        assert "collector 0 on " in status.verdicts[0]
        assert "played again, is not what it reported; it has played 3" in status.verdicts[0]
        assert not status.iterations_committed
        cluster.collector()
        status = await cluster.finished()
        assert (len(status.verdicts), list(status.caveats)) == (1, [])
        assert "is not what it reported" in status.collectors[0].spare
        assert all(not record.quarantined for record in cluster.records())
        assert cluster.outcome() == alone(chosen)


Made = TypeVar("Made")

ONE_LEARNER = (*VALUES, "learners=1")
BLOCKS, BLOCK = 3, 2
"""Blocks of an iteration, and copies of a block."""


def made(monkeypatch: pytest.MonkeyPatch, kind: type[Made]) -> list[Made]:
    """All objects of a type that are made from now on."""
    found: list[Made] = []
    init = kind.__init__

    def noting(self: Made, *words: Any, **named: Any) -> None:
        init(self, *words, **named)
        found.append(self)

    monkeypatch.setattr(kind, "__init__", noting)
    return found


async def test_with_learners_stopped_collectors_play_the_lag_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag, pools = 2, made(monkeypatch, KeyedPool)
    chosen = (*ONE_LEARNER, f"collect.lag={lag}")
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        cluster.serve()
        stopped, _ = await cluster.fake(Fault.STALL)
        for _ in range(2):
            cluster.collector()
        ahead = BLOCKS * (1 + lag)
        await cluster.status_when(lambda status: status.blocks.played == ahead, what="all ahead")
        long = 2**20
        header = pb.Played(
            rows=2 * (long + 1),
            earned=[0.0] * 6,
            won=[False] * 2,
            lengths=[long] * 2,
            digest=bytes(16),
        )
        flood = [pb.CollectorMessage(played=header).SerializeToString()]
        numerics = ready_of(cluster)
        for _ in range(3):  # refused before a row is sent
            fake = FakeCollector(cluster, numerics)
            with pytest.raises(InvalidContribution, match="was not assigned to this collector"):
                await asyncio.wait_for(fake.run(no_block, unasked=flood), WAIT_S)
        (pool,) = pools
        assert pool.totals.assigned == pool.totals.played == ahead
        assert not any(block.answer for block in pool.scheduler._open.values())
        stopped.release.set()
        await cluster.finished()
        assert not pool.lost
        assert cluster.outcome() == alone(chosen)
