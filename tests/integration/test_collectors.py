"""Collectors that play, die, hang or lie leave a keyed run as it is without collectors."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from tests.integration.cluster import Cluster
from tests.waiting import WAIT_S, eventually

from fullrank import __version__
from fullrank.common.errors import (
    ConfigError,
    EnvironmentFailed,
    InvalidContribution,
    ServiceLost,
    Stuck,
)
from fullrank.config import Resolved, load
from fullrank.local import LocalRun
from fullrank.replay.episodes import NO_ACTION
from fullrank.rpc.codec import PLAYED_CHUNKS, bundle, encode_chunks
from fullrank.rpc.controller_client import ControllerClient
from fullrank.rpc.errors import translated
from fullrank.rpc.identity import Role
from fullrank.rpc.process import Launch
from fullrank.runs.event_history import read_history
from fullrank.runs.events import BlockAssigned
from fullrank.training.block_player import BlockPlayer, PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.training.worker import probe_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring import initial_algorithm, training_of
from fullrank_collector import session, timed_player
from fullrank_collector.server import attach as attach_collector

pytestmark = pytest.mark.integration

SMALL = (
    "iterations=4",
    "learners=2",
    "environment.copies=5",
    "collect.mode=keyed",
    "collect.block=2",
    "collect.warmup=40",
    "collect.warmup_copies=4",
    "collectors.count=2",
    "replay.capacity=4096",
    "checkpoint.every=2",
    f"controller.join_deadline_s={WAIT_S}",
    f"controller.deadline_s={WAIT_S}",
    f"controller.lost_after_s={2 * WAIT_S}",
    f"controller.least_deadline_s={WAIT_S}",
    f"replay.deadline_s={WAIT_S}",
    "metrics.sinks=[]",
    "algorithm.hidden=12",
)
VALUES = (
    *SMALL,
    "algorithm.name=qmix",
    "algorithm.micro_batches=2",
    "algorithm.batch_size=8",
    "algorithm.exploration_steps=100",
    "environment.name=switch_riddle",
    "environment.agents=3",
    "code.name=uncoded",
)
ACTORS = (*SMALL, "algorithm.batch_size=16", "environment.agents=2", "code.name=uncoded")


def settings(*overrides: str) -> Resolved:
    return load(None, environ={}, overrides=overrides).check()


@cache
def alone(overrides: tuple[str, ...]) -> tuple[list[str], str]:
    """Update digests and parameters of the run in one process, which plays every block itself."""
    run = LocalRun(settings(*overrides).config, coded=False)
    return [iteration.update_digest for iteration in run.train()], run.parameter_digest()


def services(cluster: Cluster) -> None:
    """Start all but the collectors."""
    cluster.replay()
    cluster.controller()
    cluster.learners(cluster.config.learners)


def assigned(cluster: Cluster) -> list[BlockAssigned]:
    history = read_history(cluster.run_dir)
    return [event for event in history.controller if isinstance(event, BlockAssigned)]


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("overrides", [VALUES, ACTORS], ids=["qmix", "maddpg"])
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
        assert all(each.block_s > 0.0 and 0.0 <= each.idle <= 1.0 for each in status.collectors)
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


def _has_committed(least: int, status: pb.GetStatusResponse) -> bool:
    return status.iterations_committed >= least


class Hanging:
    """Makes the first block that is played hang until released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs, self.released = threading.Event(), threading.Event()
        self._play: Callable[..., PlayedBlock] = BlockPlayer.play
        monkeypatch.setattr(BlockPlayer, "play", lambda *words: self.play(*words))

    def play(self, player: BlockPlayer, key: BlockKey, play: PlayTerms) -> PlayedBlock:
        if not self.hangs.is_set():
            self.hangs.set()
            assert self.released.wait(WAIT_S)
        return self._play(player, key, play)


async def test_a_block_that_is_overdue_is_played_by_another_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging(monkeypatch)
    overrides = ("controller.deadline_s=0.5", "controller.least_deadline_s=0.5")
    async with Cluster(tmp_path, settings(*VALUES, *overrides)) as cluster:
        services(cluster)
        for _ in range(2):
            cluster.collector()
        await cluster.committed(4)
        hanging.released.set()
        status = await cluster.finished()
        keys = [(event.iteration, event.block) for event in assigned(cluster)]
        assert len(keys) > len(set(keys))  # reassigned
        assert status.blocks.reassigned == len(keys) - len(set(keys))
        assert cluster.outcome() == alone(VALUES)


async def test_an_environment_that_hangs_costs_its_collector_alone_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, ended = Hanging(monkeypatch), list[Stuck]()
    limits = chain([0.2], repeat(float(WAIT_S)))
    monkeypatch.setattr(timed_player, "limit_s", lambda *_, **__: next(limits))

    def end_process(error: Stuck) -> NoReturn:
        ended.append(error)
        hanging.released.set()  # a thread would outlive the end of a process that is none
        raise ConfigError("the process has ended")

    monkeypatch.setattr(session, "end_process", end_process)
    async with Cluster(tmp_path, settings(*VALUES)) as cluster:
        services(cluster)
        victim = cluster.collector()
        cluster.services.remove(victim)
        with pytest.raises(ConfigError, match="the process has ended"):
            await asyncio.wait_for(victim.task, WAIT_S)
        cluster.collector()
        status = await cluster.finished()
        assert [str(error) for error in ended] == [
            "iteration 0, copies 0 to 1 of seed 0: it hangs for 0.2 s"
        ]
        assert status.blocks.failed == 1
        assert cluster.outcome() == alone(VALUES)


class Failing:
    """Makes blocks fail for as long as ``fails`` says."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, fails: Callable[[BlockKey, int], bool]
    ) -> None:
        self.failures, self._fails = 0, fails
        self._play: Callable[..., PlayedBlock] = BlockPlayer.play
        monkeypatch.setattr(BlockPlayer, "play", lambda *words: self.play(*words))

    def play(self, player: BlockPlayer, key: BlockKey, play: PlayTerms) -> PlayedBlock:
        if self._fails(key, self.failures):
            self.failures += 1
            raise EnvironmentFailed(f"iteration {key.iteration}, copies 2 to 3: agent 1 is gone")
        return self._play(player, key, play)


async def test_an_environment_that_raises_costs_its_block_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(monkeypatch, lambda key, failures: key.block == 1 and failures < 2)
    async with Cluster(tmp_path, settings(*VALUES)) as cluster:
        services(cluster)
        for _ in range(2):
            cluster.collector()
        status = await cluster.finished()
        assert failing.failures == 2
        assert any("agent 1 is gone" in each.failed for each in status.collectors)
        monkeypatch.undo()
        assert cluster.outcome() == alone(VALUES)


async def test_an_environment_that_always_raises_ends_the_run_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, lambda key, _: key == (1, 1))
    async with Cluster(tmp_path, settings(*VALUES)) as cluster:
        cluster.replay()
        controller = cluster.controller()
        cluster.learners(cluster.config.learners)
        for _ in range(2):
            cluster.collector()
        with pytest.raises(EnvironmentFailed, match="agent 1 is gone; block 1 failed 3 times"):
            await asyncio.wait_for(controller.task, WAIT_S)


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


class FakeCollector:
    """Speaks the protocol and answers as it likes."""

    def __init__(self, cluster: Cluster, ready: pb.Ready) -> None:
        self._cluster, self._ready = cluster, ready

    async def run(
        self,
        answer: Callable[[pb.Play], Awaitable[list[bytes]]],
        *,
        unasked: Sequence[bytes] = (),
    ) -> None:
        """Attach, send what nobody has asked for, and answer each block.

        Raises:
            FullrankError: The controller ended the stream.
        """
        security = self._cluster.security(Role.COLLECTOR)
        client = ControllerClient(await self._cluster.address(), security=security)
        try:
            with translated("controller"):
                call = client.collect()
                hello = pb.Hello(version=__version__, host="fake")
                await call.write(pb.CollectorMessage(hello=hello).SerializeToString())
                order = await call.read()
                await call.write(pb.CollectorMessage(ready=self._ready).SerializeToString())
                for message in unasked:
                    await call.write(message)
                while isinstance(order := await call.read(), pb.CollectorOrder):
                    if order.WhichOneof("message") == "play":
                        for message in await answer(order.play):
                            await call.write(message)
                raise ServiceLost(await call.details())
        finally:
            await client.close()


async def no_block(play: pb.Play) -> list[bytes]:
    raise AssertionError(f"it was assigned {play}")


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


NO_ACTIONS = slice(-6, -3)
"""Columns of the actions of three agents."""


def lie_about(play: pb.Play, *, row_size: int, **wrong: Any) -> list[bytes]:
    """A well-formed block of one-step episodes that no collector played, with some wrong fields."""
    copies = 2 if play.block < 2 else 1
    rows = np.zeros((2 * copies, row_size), np.float32)
    rows[1::2, -1] = 1.0
    rows[0::2, NO_ACTIONS] = NO_ACTION
    earned, won = np.zeros((copies, 3)), np.zeros(copies, bool)
    played = PlayedBlock(rows, earned, won, np.ones(copies, np.int64))
    fields: dict[str, Any] = {
        "iteration": play.iteration,
        "block": play.block,
        "rows": len(rows),
        "earned": earned.reshape(-1),
        "won": won,
        "lengths": played.lengths,
        "digest": played.digest,
    }
    header = pb.Played(**fields | wrong)
    chunks = encode_chunks(rows, array_id=play.block, field=PLAYED_CHUNKS)
    return [pb.CollectorMessage(played=header).SerializeToString(), *bundle(chunks)]


BAD = {
    "block": (7, "played.block is 7 of 3"),
    "earned": ([1.0], "played.earned has 1 entries"),
    "won": ([True], "played.won has 1 entries"),
    "lengths": ([1, 0], "played.lengths has 2 entries, expected 2 above 0"),
    "rows": (2**40, "played.rows is 1099511627776, expected 4"),
    "playing_s": (float("nan"), "is not a duration"),
    "digest": (b"x" * 16, "played.digest is not that of the block"),
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
                messages = lie_about(play, row_size=row_size, **wrong)
                return messages if wrong.keys() & {"digest", "iteration"} else messages[:1]

            with pytest.raises(InvalidContribution, match=message):
                await asyncio.wait_for(fake.run(answer), WAIT_S)
        cluster.collector()
        await cluster.finished()
        assert cluster.outcome() == alone(VALUES)


def ready_of(cluster: Cluster) -> pb.Ready:
    """Readiness with the numerics of the run."""
    training = training_of(cluster.config)
    algorithm = initial_algorithm(cluster.config, training)
    digests = probe_of(algorithm, training.collector.agents, seed=cluster.config.seed).digests
    training.collector.close()
    return pb.Ready(fingerprint=algorithm.gradients.fingerprint(), probe=digests, stable=True)


async def test_two_collectors_that_play_one_block_differently_are_named(tmp_path: Path) -> None:
    """The liar answers last, so that the run keeps its bits."""
    overrides = ("controller.deadline_s=0.5", "controller.least_deadline_s=0.5", "iterations=2")
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
        await cluster.committed(1)
        truth.set()
        status = await cluster.status_when(lambda status: bool(status.caveats), what="a caveat")
        assert "played block 0 of iteration 0 differently" in status.caveats[0]
        await cluster.finished()
        liar.cancel()
        assert cluster.outcome() == alone(chosen)


async def test_a_run_without_collectors_refuses_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings(*VALUES, "collectors.count=0")) as cluster:
        services(cluster)
        await cluster.finished()
        stop = asyncio.Event()
        launch = Launch(resolved=cluster.settings, run_dir=tmp_path)
        with pytest.raises(ConfigError, match="this run plays without collectors"):
            await asyncio.wait_for(attach_collector(launch, stop), WAIT_S)
        assert cluster.outcome() == alone((*VALUES, "collectors.count=0"))
