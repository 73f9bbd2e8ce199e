"""Claim C9, half of it: 39 writers and a sampler that never rests, at one replay service.

The writers are emulated: each sleeps for the steps of an episode of `3m` (10 ms a step, 40 steps)
and then writes it, 27 kB; the sampler asks for the next minibatch of 32 episodes as soon as it has
one. The three run in processes of their own. A writer is blocked while its window of 8 episodes is
full; the sampler waits while a group is stored at the moment at which it could gather.
"""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from fullrank.common.types import RunTerm
from fullrank.net.channel import PLAINTEXT
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.replay_streams import EpisodeWriter
from fullrank.net.server import Server
from fullrank.replay import TABLE, EpisodeDraw, Sample
from fullrank.replay.authorship import ENTRIES
from fullrank.replay.draw_window import Reach
from fullrank.replay.fence import Fence
from fullrank.replay.intake import Arrival
from fullrank.replay.store import Store, table_key
from fullrank.runs.event_log import EventLog
from fullrank.v1 import replay_pb2
from fullrank_replay.pacing import Pacing
from fullrank_replay.servicer import ReplayServicer
from fullrank_reproduction.cmarl.group_commit import FREE, LAYOUT, STEPS, episode

T = TypeVar("T")

WRITERS, STEP_S, BATCH = 39, 0.01, 32
CAPACITY, ROW_SIZE = 200_000, LAYOUT.row_size + ENTRIES
RUN_TERM = RunTerm("run", 1)
DEADLINE_S = 60.0
BLOCKED_CLAIM, WAITING_CLAIM = 0.01, 0.05


class TimedPacing(Pacing):
    """Pacing that measures how long gathers wait for their turn."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s, self.gathers = 0.0, 0

    async def locked(self, call: Callable[[], T]) -> T:
        """Call in a thread, and count the wait for the turn."""
        asked = time.perf_counter()
        async with self.turn():
            self.waited_s += time.perf_counter() - asked
            self.gathers += 1
            return await asyncio.to_thread(call)


async def write(address: str, seconds: float) -> tuple[int, float]:
    """Let all writers play; return episodes, and the share of their time in which they waited.

    Each plays one episode at least, which the sampler awaits, however slow the machine is.
    """
    blocked, played = 0.0, 0
    end = time.perf_counter() + seconds
    rows = episode()

    async def play(writer: EpisodeWriter) -> None:
        nonlocal blocked, played
        await asyncio.sleep(float(np.random.default_rng(writer.writer).random()) * STEPS * STEP_S)
        while True:
            await asyncio.sleep(STEPS * STEP_S)
            asked = time.perf_counter()
            await writer.write(rows, version=0)
            blocked += time.perf_counter() - asked
            played += 1
            if time.perf_counter() >= end:
                break
        await writer.flush()
        await writer.close()

    writers = [EpisodeWriter(address, run_term=RUN_TERM) for _ in range(WRITERS)]
    await asyncio.gather(*map(play, writers))
    return played, blocked / (WRITERS * seconds)


async def sample(address: str, seconds: float) -> tuple[int, float]:
    """Draw minibatch after minibatch; return their number and the seconds that they took."""
    client = ReplayClient(address, deadline_s=DEADLINE_S)
    await client.open_table(
        row_size=ROW_SIZE,
        capacity=CAPACITY,
        head=0,
        run_term=RUN_TERM,
        arrival=Arrival(episodes=LAYOUT, pace=FREE),
    )
    drawn, started, end = 0, 0.0, float("inf")
    while time.perf_counter() < end:
        reached = await client.await_draw(drawn, newest=CAPACITY // 2)
        if not isinstance(reached, Reach):
            continue
        if not drawn:
            started = time.perf_counter()
            end = started + seconds
        wanted = Sample(
            table=TABLE,
            seed=1,
            iteration=drawn,
            tail=reached.tail,
            head=reached.head,
            size=BATCH,
            episodes=EpisodeDraw(length=LAYOUT.length, newest=5000),
        )
        await client.get_sample(sample_message(wanted), row_size=ROW_SIZE)
        drawn += 1
    await client.close()
    return drawn, time.perf_counter() - started


def run_write(address: str, seconds: float) -> tuple[int, float]:
    """Do ``write`` in a process of its own."""
    return asyncio.run(write(address, seconds))


def run_sample(address: str, seconds: float) -> tuple[int, float]:
    """Do ``sample`` in a process of its own."""
    return asyncio.run(sample(address, seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWaits:
    """Waits of writers and sampler, as shares of their time."""

    episodes: int
    """Number of episodes written."""
    blocked: float
    """Share of their time in which writers could not go on."""
    minibatches: int
    """Number of minibatches drawn."""
    waited: float
    """Share of its time in which the sampler waited while a group was stored."""


async def serve(home: Path, seconds: float) -> QueueWaits:
    """Serve writers and a sampler for a while.

    Args:
        home: Directory of the service.
        seconds: Length of the measurement.
    """
    pacing = TimedPacing()
    store = Store(home, sync=False)
    servicer = ReplayServicer(store, Fence(home), EventLog(), pacing=pacing)
    server = Server(
        replay_pb2.DESCRIPTOR.services_by_name["ReplayService"],
        servicer,
        security=PLAINTEXT,
        prebuilt=frozenset({"GetSamples"}),
    )
    address = await server.start("127.0.0.1:0")
    loop, context = asyncio.get_running_loop(), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        sampling = loop.run_in_executor(pool, run_sample, address, seconds)
        await pacing.moved(lambda: table_key(RUN_TERM.run, TABLE) in store.tables)
        writing = loop.run_in_executor(pool, run_write, address, seconds)
        (drawn, took_s), (played, blocked) = await sampling, await writing
    await server.stop()
    return QueueWaits(
        episodes=played, blocked=blocked, minibatches=drawn, waited=pacing.waited_s / took_s
    )


def measure(seconds: float) -> QueueWaits:
    """Measure waits at a replay service in a directory of its own, which is removed.

    Args:
        seconds: Length of the measurement.
    """
    with tempfile.TemporaryDirectory(dir=".", prefix=".multi-queue-") as scratch:
        return asyncio.run(serve(Path(scratch), seconds))
