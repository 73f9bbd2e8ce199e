"""A block that hangs fails by name where its processes can be ended, and else loses its thread."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.waiting import WAIT_S

from fullrank.common.errors import EnvironmentFailed, Stuck
from fullrank.config.tree import ControllerSettings, RunConfig
from fullrank.host.process import Launch
from fullrank.training.block_player import BlockPlayer, PlayTerms, Publication
from fullrank.training.blocks import BlockKey
from fullrank_collector import run_context, server
from fullrank_collector.run_context import TimedPlayer

KEY = BlockKey(3, 1)
PLAY = PlayTerms(publication=Publication(version=0, sections={}), env_steps=0)


class HangingPlayer:
    """Hangs until its processes are ended, if it has any, or until released.

    Args:
        processes: Whether its copies have processes, which can be ended.
    """

    def __init__(self, *, processes: bool) -> None:
        self._processes, self._reason = processes, ""
        self.released = threading.Event()

    def play(self, key: BlockKey, play: PlayTerms) -> str:
        assert self.released.wait(WAIT_S)
        if self._reason:
            raise EnvironmentFailed(f"{self.name(key)}: {self._reason}")
        return "played"

    def name(self, key: BlockKey) -> str:
        return f"block {key.block} of iteration {key.iteration}"

    def doing(self) -> str:
        return "copy 4 is in step 3 of seed 9 of a game"

    def interrupt(self, reason: str) -> bool:
        if self._processes:
            self._reason = reason
            self.released.set()
        return self._processes

    def recover(self) -> None:
        """Play without hanging from now on."""
        self._reason = ""
        self.released.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def timed(hanging: HangingPlayer, pool: ThreadPoolExecutor) -> TimedPlayer:
    return TimedPlayer(cast(BlockPlayer, hanging), pool=pool, settings=ControllerSettings())


async def test_a_hung_block_is_interrupted_and_the_next_one_is_played(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = HangingPlayer(processes=True)
    player = timed(hanging, pool)
    with monkeypatch.context() as patch:
        patch.setattr(run_context, "limit_s", lambda *_, **__: 0.125)
        with pytest.raises(
            EnvironmentFailed, match=r"block 1 of iteration 3: no answer for 0\.1 s"
        ):
            await player.play(KEY, PLAY)
    hanging.recover()
    played: object = await player.play(KEY, PLAY)
    assert played == "played"  # on the same thread


async def test_a_hung_block_without_processes_is_stuck_by_name(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = HangingPlayer(processes=False)
    monkeypatch.setattr(run_context, "limit_s", lambda *_, **__: 0.125)
    try:
        with pytest.raises(Stuck, match=r"block 1 of iteration 3: it hangs for 0\.1 s; copy 4 "):
            await timed(hanging, pool).play(KEY, PLAY)
    finally:
        hanging.recover()  # its thread ends


@pytest.mark.parametrize("processes", [True, False])
async def test_a_collector_ends_though_its_block_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, processes: bool
) -> None:
    hanging, closed = HangingPlayer(processes=processes), threading.Event()

    async def told_to_stop(role: str, launch: Launch, dial: Any, **_: object) -> None:
        session = dial.__self__
        session.context = SimpleNamespace(player=hanging, close=closed.set)
        session._pool.submit(hanging.play, KEY, PLAY)

    monkeypatch.setattr(server, "attach_as", told_to_stop)
    monkeypatch.setattr(server, "CLOSING_S", 0.125)
    try:
        await server.attach(cast(Launch, SimpleNamespace(config=RunConfig())))
        assert closed.is_set() == processes
        assert caplog.messages == ([] if processes else [f"block_left {hanging.doing()}"])
    finally:
        hanging.recover()  # its thread ends
