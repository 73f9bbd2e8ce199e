"""Acknowledged episodes are in the table once and whole, whatever happens to line and service."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.addresses import free_address
from tests.faultlab.fault_proxy import FaultProxy
from tests.waiting import WAIT_S, eventually

from fullrank.common.failpoints import VARIABLE
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.replay_client import ReplayClient
from fullrank.net.replay_streams import EpisodeWriter
from fullrank.replay import TABLE, EpisodeLayout, RingFile, Table
from fullrank.replay.authorship import ENTRIES, authorships
from fullrank.replay.intake import Arrival
from fullrank.replay.pace import Pace

pytestmark = pytest.mark.integration

LAYOUT = EpisodeLayout(observation_sizes=(2,), action_sizes=(2,))
ROW_SIZE, CAPACITY = LAYOUT.row_size + ENTRIES, 5000
FREE = Pace(updates_per_episode=0.0, slack=0, window=1, warmup=0, max_lag=100)
RUN_TERM = RunTerm("run", 1)
WRITERS, EPISODES = 3, 40


def episode(number: int) -> FloatArray:
    """An episode of one to four steps."""
    steps = 1 + number % 4
    rows: FloatArray = np.zeros((steps + 1, LAYOUT.row_size), np.float32)
    rows[:, LAYOUT.observation] = number
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = steps
    return rows


class Writers:
    """Writers that write their episodes at the same time; they pause after half of them.

    Attributes:
        writers: Their clients.
        resumed: Set to let them write the other half.
    """

    def __init__(self, address: str) -> None:
        self.resumed = asyncio.Event()
        self.writers = [EpisodeWriter(address, run_term=RUN_TERM, window=4) for _ in range(WRITERS)]
        self._playing = asyncio.gather(*map(self._play, self.writers))

    async def _play(self, writer: EpisodeWriter) -> None:
        for number in range(1, EPISODES + 1):
            if number > EPISODES // 2:
                await self.resumed.wait()
            await writer.write(episode(number), version=0)
        await writer.flush()

    @property
    def settled(self) -> int:
        """Episodes that were acknowledged."""
        return sum(writer.settled for writer in self.writers)

    async def finish(self) -> None:
        """Wait until all of them are settled."""
        await asyncio.wait_for(self._playing, WAIT_S)
        for writer in self.writers:
            await writer.close()

    def assert_held(self, path: Path) -> None:
        """A copy of the table's file holds every acknowledged episode once, whole, in order."""
        copy = path.with_suffix(".copy")
        copy.write_bytes(path.read_bytes())
        table = Table(RingFile(copy, sync=False), capacity=CAPACITY)
        rows = table.gather(np.arange(table.head))
        every = authorships(rows)
        ends = np.flatnonzero(every[:, 3])
        assert every[ends, 3].tolist() == list(range(1, len(ends) + 1))
        held = [(writer, sequence) for writer, sequence, *_ in every[ends].tolist()]
        assert not [each for each, count in Counter(held).items() if count > 1]
        for end, (_, sequence) in zip(ends.tolist(), held, strict=True):
            whole = rows[end - sequence % 4 - 1 : end + 1, : LAYOUT.row_size]
            assert np.array_equal(whole, episode(sequence))
        for writer in self.writers:
            ours = [sequence for of, sequence in held if of == writer.writer]
            assert ours == list(range(1, len(ours) + 1))
            assert len(ours) >= writer.settled


def serve(run_dir: Path, address: str, failpoint: str = "") -> "subprocess.Popen[bytes]":
    words = ["serve", "replay", "--run-dir", str(run_dir), "--set", f"replay.address={address}"]
    return subprocess.Popen(
        [sys.executable, "-m", "fullrank", *words], env={**os.environ, VARIABLE: failpoint}
    )


async def ended(service: "subprocess.Popen[bytes]", *, code: int) -> None:
    assert await asyncio.to_thread(service.wait, WAIT_S) == code


async def open_table(address: str) -> None:
    client = ReplayClient(address, deadline_s=WAIT_S)
    await client.open_table(
        row_size=ROW_SIZE,
        capacity=CAPACITY,
        head=0,
        run_term=RUN_TERM,
        arrival=Arrival(episodes=LAYOUT, pace=FREE),
    )
    await client.close()


async def ask(address: str) -> None:
    """Let an iteration ask, before which a service that was restarted knows nothing to be fresh."""
    client = ReplayClient(address, deadline_s=WAIT_S)
    client.under(RUN_TERM)
    await client.await_draw(0, newest=CAPACITY)
    await client.close()


@pytest.mark.parametrize("failpoint", ["rows.written:4", "rows.stored:9"])
async def test_a_service_killed_between_storing_and_acknowledging_stores_each_episode_once(
    tmp_path: Path, failpoint: str
) -> None:
    address = free_address().replace("127.0.0.1", "127.0.0.2")
    path = tmp_path / "replay" / RUN_TERM.run / f"{TABLE}.table"
    service = serve(tmp_path, address, failpoint)
    await open_table(address)
    writers = Writers(address)
    writers.resumed.set()
    await ended(service, code=-signal.SIGKILL)
    writers.assert_held(path)
    service = serve(tmp_path, address)
    await ask(address)
    await writers.finish()
    assert writers.settled == WRITERS * EPISODES
    writers.assert_held(path)
    service.send_signal(signal.SIGTERM)
    await ended(service, code=0)


@asynccontextmanager
async def behind_a_proxy(run_dir: Path) -> AsyncIterator[FaultProxy]:
    """A service whose table is open, and a proxy before it."""
    address = free_address().replace("127.0.0.1", "127.0.0.2")
    service = serve(run_dir, address)
    await open_table(address)
    async with FaultProxy(lambda: address) as proxy:
        yield proxy
    service.send_signal(signal.SIGTERM)
    await ended(service, code=0)


FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "cut": FaultProxy.cut,
    "answers do not pass, then cut": lambda proxy: proxy.down.hold(),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_episodes_whose_answers_were_lost_are_sent_again_and_stored_once(
    tmp_path: Path, fault: str
) -> None:
    async with behind_a_proxy(tmp_path) as proxy:
        writers = Writers(proxy.address)
        half = WRITERS * EPISODES // 2
        await eventually(lambda: writers.settled == half, what="the first half is written")
        before = proxy.disrupted
        FAULTS[fault](proxy)
        writers.resumed.set()
        await eventually(lambda: proxy.disrupted > before, what="a line is disturbed")
        proxy.cut()
        proxy.heal()
        await writers.finish()
        assert writers.settled == WRITERS * EPISODES
        assert all(writer.streams > 1 for writer in writers.writers)
        writers.assert_held(tmp_path / "replay" / RUN_TERM.run / f"{TABLE}.table")
