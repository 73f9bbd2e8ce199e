"""Claim C9: neither actors nor learners wait at replay, which stores episodes in batches.

*Waits*: 39 writers and a sampler that never rests, at one replay service. The writers are emulated:
each sleeps for the steps of an episode of `3m` (10 ms a step, 40 steps) and then writes it, 27 kB;
the sampler asks for the next minibatch of 32 episodes as soon as it has one. The three run in
processes of their own. A writer is blocked while its window of 8 episodes is full; the sampler
waits while a group is stored at the moment at which it could gather.

*Groups*: episodes stored as a group against episodes stored one by one. They pass through the inbox
of a table that grows by arrival: a turn at the table, a thread, the checks, the rows with their
checksums, and with fsync the disk. Both ways take turns over the same file.
"""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

import numpy as np

from fullrank.common.types import JSON, FloatArray, RunTerm
from fullrank.net.channel import PLAINTEXT
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.replay_streams import EpisodeWriter
from fullrank.net.server import Server
from fullrank.replay import TABLE, EpisodeDraw, EpisodeLayout, RingFile, Sample, Table
from fullrank.replay.authorship import ENTRIES
from fullrank.replay.draw_window import Reach
from fullrank.replay.fence import Fence
from fullrank.replay.intake import Arrival, EpisodeOutcome, Fate, Intake, WrittenEpisode
from fullrank.replay.pace import Pace
from fullrank.replay.store import Store, table_key
from fullrank.runs.event_log import EventLog
from fullrank.v1 import replay_pb2
from fullrank_papers.cells import Cell, Results
from fullrank_papers.claims import ClaimResult, Strength, judge, untested
from fullrank_replay.inbox import Inbox, QueuedEpisode
from fullrank_replay.pacing import Pacing
from fullrank_replay.servicer import ReplayServicer

T = TypeVar("T")

WRITERS, STEP_S, BATCH = 39, 0.01, 32
RUN_TERM = RunTerm("run", 1)
DEADLINE_S = 60.0
BLOCKED_CLAIM, WAITING_CLAIM, GROUP_CLAIM = 0.01, 0.05, 4.0
LAYOUT = EpisodeLayout(observation_sizes=(30,) * 3, action_sizes=(9,) * 3, state_size=48)
STEPS, TURN, GROUP = 40, 64, 16
TABLE_ROWS, RING_ROWS = 200_000, 20_000
ROW_SIZE = LAYOUT.row_size + ENTRIES
FREE = Pace(updates_per_episode=0.0, slack=0, window=1, warmup=0, max_lag=0)
WAITS, GROUPS = "queue-waits", "queue-groups"
WAYS: Final = {"memory": False, "fsync": True}
"""Acknowledgements, and whether they wait for the disk."""


def cells(*, seconds: float, turns: int) -> list[Cell]:
    """Waits of 39 writers and a sampler; group commit against one by one.

    Args:
        seconds: Length of the first measurement.
        turns: Turns of each way in the second.
    """
    return [
        Cell(
            name=WAITS,
            settings={"seconds": seconds, "writers": WRITERS},
            compute=partial(_waits, seconds),
            weight=2 * seconds,
        ),
        Cell(
            name=GROUPS,
            settings={"turns": turns, "group": GROUP},
            compute=partial(_groups, turns),
            weight=turns,
        ),
    ]


def _waits(seconds: float) -> JSON:
    return asdict(measure(seconds))


def _groups(turns: int) -> JSON:
    return {name: median(ratios(sync=sync, turns=turns)) for name, sync in WAYS.items()}


def judge_queues(results: Results) -> ClaimResult:
    """Judge claim C9."""
    claim = "C9: the multi-queue manager lets neither actors nor the learner wait."
    if not {WAITS, GROUPS} <= results.keys():
        return untested(claim, "not judged: `--only queues` measures it")
    waits, groups = results[WAITS], results[GROUPS]
    parts = {
        f"{WRITERS} writers blocked {waits['blocked']:.3%} of their time (below 1 %)": (
            waits["blocked"] < BLOCKED_CLAIM
        ),
        f"a sampler without rest waited {waits['waited']:.1%} of its time (below 5 %)": (
            waits["waited"] < WAITING_CLAIM
        ),
        **{
            f"an episode in a group takes 1/{groups[name]:.1f} of the time, {name} "
            f"(at most 1/{GROUP_CLAIM:g})": groups[name] >= GROUP_CLAIM
            for name in WAYS
        },
    }
    return judge(
        claim,
        [said for said, holds in parts.items() if not holds],
        grounds="; ".join(parts),
        strength=Strength("measured on a real replay service, one machine"),
    )


def episode() -> FloatArray:
    """An episode in which every action is available and the first one is taken."""
    rows = np.zeros((STEPS + 1, LAYOUT.row_size), np.float32)
    rows[:, LAYOUT.observation] = np.random.default_rng(0).random((STEPS + 1, 90))
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = STEPS
    return rows


class LocalWriter:
    """A writer without a line."""

    run_term = RunTerm("run", 1)

    def __init__(self) -> None:
        self._left, self._done = 0, asyncio.Event()

    def settle(self, sequence: int, outcome: EpisodeOutcome) -> None:
        """Count a stored episode."""
        assert outcome.fate is Fate.STORED
        self._left -= 1
        if not self._left:
            self._done.set()

    def fail(self, error: Exception) -> None:
        """Raise the error of a commit, if it failed."""
        raise error

    async def settled(self, episodes: int) -> None:
        """Wait until that many more episodes are stored."""
        self._left = episodes
        self._done.clear()
        await self._done.wait()


async def seconds(
    inbox: Inbox, source: LocalWriter, sequences: "count[int]", *, group: int
) -> float:
    """Seconds for an episode, stored in groups of this size."""
    rows, started = episode(), time.perf_counter()
    for _ in range(TURN // group):
        for _ in range(group):
            sent = WrittenEpisode(1, next(sequences), 0, rows)
            await inbox.room.take(rows.nbytes)
            inbox.put(QueuedEpisode(sent, source, rows.nbytes))
        await source.settled(group)
    return (time.perf_counter() - started) / TURN


async def compare(path: Path, *, sync: bool, turns: int) -> tuple[list[float], list[float]]:
    """Seconds for an episode, one by one and in groups, turn by turn."""
    storage = RingFile.create(path, row_size=ROW_SIZE, capacity=RING_ROWS, sync=sync)
    table = Table(storage, capacity=RING_ROWS)
    intake = Intake(table, Arrival(episodes=LAYOUT, pace=FREE))

    def commit(group: Sequence[QueuedEpisode]) -> list[EpisodeOutcome | Exception]:
        return list(intake.store([waiting.episode for waiting in group]))

    inbox, source, sequences = Inbox(intake, Pacing(), commit), LocalWriter(), count(1)
    alone, grouped = [], []
    for _ in range(turns):
        alone.append(await seconds(inbox, source, sequences, group=1))
        before = inbox.groups
        grouped.append(await seconds(inbox, source, sequences, group=GROUP))
        assert inbox.groups - before == TURN // GROUP
    return alone, grouped


def ratios(*, sync: bool, turns: int) -> list[float]:
    """Time of an episode stored alone in that of one in a group, turn by turn.

    Args:
        sync: True to write through to the disk before an acknowledgement.
        turns: Turns of each way.
    """
    with tempfile.TemporaryDirectory(dir=".", prefix=".group-commit-") as scratch:
        path = Path(scratch) / "t.table"
        alone, grouped = asyncio.run(compare(path, sync=sync, turns=turns))
    return [one / other for one, other in zip(alone, grouped, strict=True)]


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
        capacity=TABLE_ROWS,
        head=0,
        run_term=RUN_TERM,
        arrival=Arrival(episodes=LAYOUT, pace=FREE),
    )
    drawn, started, end = 0, 0.0, float("inf")
    while time.perf_counter() < end:
        reached = await client.await_draw(drawn, newest=TABLE_ROWS // 2)
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
