"""With learners stopped and collectors flooding, memory keeps its stated bounds."""

import asyncio
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.fakes import Fault
from tests.integration.cluster import Cluster
from tests.integration.collecting import (
    VALUES,
    FakeCollector,
    alone,
    no_block,
    ready_of,
    settings,
)
from tests.waiting import WAIT_S

from fullrank.common.errors import InvalidContribution
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.keyed_pool import KeyedPool

pytestmark = pytest.mark.integration

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
