"""Several updates over each collection: a small PPO, coded, on every host, resumed and verified."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster import Cluster
from tests.integration.collecting import SMALL, alone, settings
from tests.integration.test_local import run
from tests.small_ppo import SmallPPO
from tests.waiting import WAIT_S

from fullrank.algorithms.groups import Networks
from fullrank.cli.verify import verify
from fullrank.common.errors import ConfigError, Corrupted
from fullrank.common.types import FloatArray
from fullrank.replay.episodes import EpisodeLayout
from fullrank.training.trainer import Trainer
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import training_of
from fullrank_controller.persistence.store import RunStore

pytestmark = pytest.mark.integration

PPO = (
    *SMALL,
    "iterations=16",
    "environment.name=switch_riddle",
    "environment.agents=3",
    "environment.copies=8",
    "algorithm.name=small_ppo",
    "algorithm.micro_batches=2",
    "code.name=fractional",
    "code.tolerance=1",
)
"""Collections of 8 episodes, in two epochs of two minibatches: K = 4."""
K = 4


async def test_the_first_update_over_a_collection_records_its_episodes(tmp_path: Path) -> None:
    records = await run(tmp_path, settings(*PPO))
    assert [record.update_digest for record in records] == alone(PPO)[0]
    told = [record.return_mean is not None for record in records]
    assert told == [True, False, False, False] * 4


async def test_updates_over_a_collection_go_on_while_the_disk_takes_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes the first one when the last one is applied, then the others together."""
    applied, written = threading.Event(), list[int]()
    append, apply = RunStore._append, Trainer.apply

    def append_late(store: RunStore, iterations: Sequence[Any], *rows: Any) -> None:
        written.append(len(iterations))
        assert applied.wait(WAIT_S)
        append(store, iterations, *rows)

    def apply_and_tell(trainer: Trainer, *updates: Any, iteration: int) -> Mapping[str, float]:
        statistics = apply(trainer, *updates, iteration=iteration)
        if iteration == K - 1:
            applied.set()
        return statistics

    monkeypatch.setattr(RunStore, "_append", append_late)
    monkeypatch.setattr(Trainer, "apply", apply_and_tell)
    records = await run(tmp_path, settings(*PPO))
    assert [record.update_digest for record in records] == alone(PPO)[0]
    assert written[0] == 1
    assert written[1] >= K - 2  # the last one may be applied and not recorded yet


@pytest.mark.parametrize(
    ("name", "lag"),
    [
        *(("small_ppo", 1), ("mappo", 1), ("ippo", 0), ("pqn", 1)),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in (("small_ppo", 0), ("coma", 1))
        ),
    ],
)
async def test_learners_and_collectors_that_die_within_a_collection_change_no_bit(
    tmp_path: Path, name: str, lag: int
) -> None:
    """The controller ends after the second update of four over a collection."""
    sizes = [f"algorithm.name={name}"]
    if name == "coma":
        sizes.append("algorithm.batch_size=2")
    else:
        sizes += ["algorithm.batch_size=4", "algorithm.epochs=2"]
    if name == "ippo":
        sizes.append("algorithm.recurrent=true")
    chosen = (*PPO, *sizes, f"collect.lag={lag}", "checkpoint.every=3")
    async with Cluster(tmp_path, settings(*chosen), updates=K) as cluster:
        cluster.replay()
        controller = cluster.controller()
        learner, *_ = cluster.learners(2)
        collector = cluster.collector()
        cluster.collector()
        await cluster.status_when(partial(_has_committed, K + 2), what="within a collection")
        await controller.end()
        await learner.end()  # the code bears the loss
        await collector.end()
        left_at = len(cluster.records())
        cluster.controller()
        cluster.learner()
        await cluster.finished()
        assert K < left_at < 16
        assert cluster.outcome() == alone(chosen)
        for service in cluster.services:
            await service.end()
    await asyncio.to_thread(verify, str(tmp_path))


async def test_columns_that_were_not_derived_from_their_episode_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = SmallPPO.prepare

    def lie(self: SmallPPO, rows: FloatArray, nets: Networks, layout: EpisodeLayout) -> None:
        prepare(self, rows, nets, layout)
        rows[0, layout.columns["return"]] += 1.0

    with monkeypatch.context() as patch:
        patch.setattr(SmallPPO, "prepare", lie)
        await run(tmp_path, settings(*PPO, "checkpoint.every=16"))
    with pytest.raises(Corrupted, match="iteration 0 differs: columns that were derived"):
        await asyncio.to_thread(verify, str(tmp_path))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("collect.mode=free",), "no fixed number of them; use 'inline'"),
        (("sampling.method=prioritised",), "draws every item once"),
        (("environment.copies=6",), "does not divide the 6 items of a collection"),
        (("iterations=6",), "ends within the 4 updates over a collection; use 8"),
    ],
)
def test_what_cannot_be_drawn_once_is_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        training_of(settings(*PPO, *overrides).config)


def _has_committed(least: int, status: pb.GetStatusResponse) -> bool:
    return status.iterations_committed >= least
