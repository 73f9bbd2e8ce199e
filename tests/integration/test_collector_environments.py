"""Environments that are slow, hang or raise in a collector leave a keyed run as it is."""

import asyncio
import threading
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import NoReturn

import pytest
from tests.integration.cluster import Cluster
from tests.integration.collecting import VALUES, alone, assigned, services, settings
from tests.waiting import WAIT_S

from fullrank.common.errors import ConfigError, EnvironmentFailed, Stuck
from fullrank.training.block_player import BlockPlayer, PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank_collector import run_context, server

pytestmark = pytest.mark.integration


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
    # A collector that hangs ends its process, which is that of the tests.
    monkeypatch.setattr(run_context, "limit_s", lambda *_, **__: float(WAIT_S))
    overrides = ("controller.deadline_s=0.5",)
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
    monkeypatch.setattr(run_context, "limit_s", lambda *_, **__: next(limits))

    def end_process(error: Stuck) -> NoReturn:
        ended.append(error)
        hanging.released.set()  # a thread would outlive the end of a process that is none
        raise ConfigError("the process has ended")

    monkeypatch.setattr(server, "end_process", end_process)
    monkeypatch.setattr(server, "GOODBYE_S", WAIT_S)
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
