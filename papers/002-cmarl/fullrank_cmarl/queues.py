"""Claim C9: neither actors nor learners wait at replay, which stores episodes in batches.

*Waits*: 39 collectors and a sampler that never rests, at one replay service. The collectors are
emulated: each sleeps for the steps of an episode of `3m` (10 ms a step, 40 steps) and then stages
it, 27 kB, as a block; the sampler asks for the next minibatch of 32 episodes as soon as it has one.
The three run in processes of their own, the controller that grants and accepts blocks in that of
the collectors. A collector is blocked while two of its blocks are not accepted; the sampler waits
while a block is stored at the moment at which it could gather.

*Groups*: episodes staged and accepted as one block against episodes of blocks of their own. Both
ways take turns at one service: messages, checks, digests, rows with their checksums, a turn at the
table, and with fsync the disk.
"""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import numpy as np

from fullrank.common.types import JSON, FloatArray, RunTerm
from fullrank.net.channel import PLAINTEXT
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import Server
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.fence import Fence
from fullrank.replay.samplers import EpisodeDraw, Sample
from fullrank.replay.staging import Grant, block_digest, rows_digest
from fullrank.replay.store import Store
from fullrank.replay.table import TABLE
from fullrank.runs.events import EventLog
from fullrank.v1 import replay_pb2
from fullrank_papers.cells import Cell, Results
from fullrank_papers.claims import ClaimResult, Strength, Whose, judge, undecided
from fullrank_replay.pacing import Pacing
from fullrank_replay.servicer import ReplayServicer

T = TypeVar("T")

WRITERS, STEP_S, BATCH = 39, 0.01, 32
RUN_TERM = RunTerm("run", 1)
DEADLINE_S = 60.0
BLOCKED_CLAIM, WAITING_CLAIM, GROUP_CLAIM = 0.01, 0.05, 4.0
LAYOUT = EpisodeLayout(observation_sizes=(30,) * 3, action_sizes=(9,) * 3, state_size=48)
STEPS, TURN, GROUP = 40, 64, 16
REST_S = 0.01
"""Rest after a block: its three calls are as many as a server takes in it from one connection."""
TABLE_ROWS, RING_ROWS = 200_000, 20_000
GRANT = Grant(most_rows=GROUP * (STEPS + 1), episodes=LAYOUT)
AHEAD = 2
WAITS, GROUPS = "staging-waits", "staging-groups"
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
            compute=partial(measure, seconds),
            weight=2 * seconds,
        ),
        Cell(
            name=GROUPS,
            settings={"turns": turns, "group": GROUP},
            compute=partial(_groups, turns),
            weight=turns,
        ),
    ]


def _groups(turns: int) -> JSON:
    """Median over turns of the time of an episode stored alone in that of one in a group."""
    found: JSON = {}
    for name, sync in WAYS.items():
        with tempfile.TemporaryDirectory(dir=".", prefix=".group-commit-") as scratch:
            times = asyncio.run(compare(Path(scratch), sync=sync, turns=turns))
        found[name] = median(one / other for one, other in times)
    return found


def judge_queues(results: Results) -> ClaimResult:
    """Judge claim C9."""
    claim = (
        "C9 in kind: at a replay service that stores episodes in groups, emulated writers and a "
        "sampler hardly wait."
    )
    if not {WAITS, GROUPS} <= results.keys():
        return undecided(claim, "`--only queues` measures it")
    waits, groups = results[WAITS], results[GROUPS]
    parts = {
        f"{WRITERS} writers blocked {waits['blocked']:.3%} of the time (below 1 %)": (
            waits["blocked"] < BLOCKED_CLAIM
        ),
        f"a sampler waited {waits['waited']:.1%} (below 5 %)": (waits["waited"] < WAITING_CLAIM),
        **{
            f"grouped episodes are {groups[name]:.1f} times as quick, {name} "
            f"(at least {GROUP_CLAIM:g})": groups[name] >= GROUP_CLAIM
            for name in WAYS
        },
    }
    return judge(
        claim,
        [said for said, holds in parts.items() if not holds],
        grounds="; ".join(parts),
        strength=Strength("measured once on a real replay service of one machine"),
        whose=Whose.OURS,
    )


def episode() -> FloatArray:
    """An episode in which every action is available and the first one is taken."""
    rows = np.zeros((STEPS + 1, LAYOUT.row_size), np.float32)
    rows[:, LAYOUT.observation] = np.random.default_rng(0).random((STEPS + 1, 90))
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = STEPS
    return rows


class Client:
    """A controller, and the collectors of its process.

    Args:
        address: The service's.
    """

    def __init__(self, address: str) -> None:
        self._replay = ReplayClient(address, deadline_s=DEADLINE_S)
        self._replay.under(RUN_TERM)
        self._turn, self._blocks = asyncio.Lock(), 0
        self.head = 0

    async def open(self, capacity: int) -> None:
        """Open the table."""
        await self._replay.open_table(
            row_size=LAYOUT.row_size, capacity=capacity, head=0, run_term=RUN_TERM
        )

    async def store(self, rows: FloatArray, lengths: Sequence[int]) -> None:
        """Let a block be granted, staged and accepted."""
        block, self._blocks = self._blocks, self._blocks + 1
        await self._replay.grant(1, range(block, block + 1), GRANT)
        await self._replay.stage(1, block, rows, np.array(lengths))
        digest = block_digest(rows_digest(rows), lengths)
        async with self._turn:
            unstaged = await self._replay.accept(
                1, self.head, [digest], rows=len(rows), first=block
            )
            assert unstaged is None
            self.head += len(rows)

    async def close(self) -> None:
        """Close the channels."""
        await self._replay.close()


async def seconds(client: Client, *, group: int) -> float:
    """Seconds for an episode, in blocks of this size."""
    rows, spent_s = np.concatenate([episode()] * group), 0.0
    for _ in range(TURN // group):
        started = time.perf_counter()
        await client.store(rows, [STEPS] * group)
        spent_s += time.perf_counter() - started
        await asyncio.sleep(REST_S)
    return spent_s / TURN


async def compare(home: Path, *, sync: bool, turns: int) -> list[tuple[float, float]]:
    """Seconds for an episode, one by one and in groups, turn by turn.

    Args:
        home: Directory of the service.
        sync: True to write through to the disk before an acknowledgement.
        turns: Turns of each way.
    """
    server = server_of(Store(home, sync=sync), home, Pacing())
    client = Client(await server.start("127.0.0.1:0"))
    await client.open(RING_ROWS)
    times = [
        (await seconds(client, group=1), await seconds(client, group=GROUP)) for _ in range(turns)
    ]
    await client.close()
    await server.stop()
    return times


def server_of(store: Store, home: Path, pacing: Pacing) -> Server:
    """Make a replay service."""
    return Server(
        replay_pb2.DESCRIPTOR.services_by_name["ReplayService"],
        ReplayServicer(store, Fence(home), EventLog(), pacing=pacing),
        security=PLAINTEXT,
        prebuilt=frozenset({"GetSamples"}),
    )


class TimedPacing(Pacing):
    """Pacing that measures how long samples, and not appends, wait for their turn."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0

    async def locked(self, call: Callable[[], T]) -> T:
        """Call in a thread, and count the wait for the turn."""
        asked = time.perf_counter()
        samples = any(isinstance(each, Sample) for each in getattr(call, "args", ()))

        def begun() -> T:
            self.waited_s += samples * (time.perf_counter() - asked)
            return call()

        return await super().locked(begun)


HEAD = multiprocessing.get_context("spawn").Value("q", 0)
"""One past the last accepted row, which the sampler's process reads."""


def share(head: "Synchronized[int]") -> None:
    """Share the head of the table with a process that begins."""
    global HEAD
    HEAD = head


async def write(address: str, seconds: float) -> tuple[int, float]:
    """Let all collectors play; return episodes, and the share of their time in which they waited.

    Each plays one episode at least, which the sampler awaits, however slow the machine is.
    """
    blocked, played = 0.0, 0
    end = time.perf_counter() + seconds
    rows, client = episode(), Client(address)
    await client.open(TABLE_ROWS)

    async def store(room: asyncio.Semaphore) -> None:
        await client.store(rows, [STEPS])
        HEAD.value = client.head
        room.release()

    async def play(number: int) -> None:
        nonlocal blocked, played
        room, storing = asyncio.Semaphore(AHEAD), set[asyncio.Task[None]]()
        await asyncio.sleep(float(np.random.default_rng(number).random()) * STEPS * STEP_S)
        while True:
            await asyncio.sleep(STEPS * STEP_S)
            asked = time.perf_counter()
            await room.acquire()
            blocked += time.perf_counter() - asked
            storing.add(asyncio.create_task(store(room)))
            played += 1
            if time.perf_counter() >= end:
                break
        await asyncio.gather(*storing)

    await asyncio.gather(*map(play, range(WRITERS)))
    await client.close()
    return played, blocked / (WRITERS * seconds)


async def sample(address: str, seconds: float) -> tuple[int, float]:
    """Draw minibatch after minibatch; return their number and the seconds that they took."""
    client = ReplayClient(address, deadline_s=DEADLINE_S)
    client.under(RUN_TERM)
    drawn, started, end = 0, 0.0, float("inf")
    while time.perf_counter() < end:
        if not (head := HEAD.value):
            await asyncio.sleep(STEP_S)
            continue
        if not drawn:
            started = time.perf_counter()
            end = started + seconds
        wanted = Sample(
            table=TABLE,
            seed=1,
            iteration=drawn,
            tail=max(0, head - TABLE_ROWS // 2),
            head=head,
            size=BATCH,
            draw=EpisodeDraw(length=LAYOUT.length, newest=5000),
        )
        await client.get_sample(sample_message(wanted), row_size=LAYOUT.row_size)
        drawn += 1
    await client.close()
    return drawn, time.perf_counter() - started


def alone(task: Callable[[str, float], Coroutine[Any, Any, T]], address: str, seconds: float) -> T:
    """Do ``write`` or ``sample`` in a process of its own."""
    return asyncio.run(task(address, seconds))


async def serve(home: Path, seconds: float) -> JSON:
    """Serve writers and a sampler for a while.

    Args:
        home: Directory of the service.
        seconds: Length of the measurement.

    Returns:
        Numbers of episodes written and minibatches drawn, and the shares of their time in which
        collectors could not go on (``blocked``) and in which the sampler waited while a block was
        stored (``waited``).
    """
    pacing = TimedPacing()
    server = server_of(Store(home, sync=False), home, pacing)
    address = await server.start("127.0.0.1:0")
    loop, context = asyncio.get_running_loop(), multiprocessing.get_context("spawn")
    head = context.Value("q", 0)
    with ProcessPoolExecutor(2, context, initializer=share, initargs=(head,)) as pool:
        writing = loop.run_in_executor(pool, alone, write, address, seconds)
        sampling = loop.run_in_executor(pool, alone, sample, address, seconds)
        (drawn, took_s), (played, blocked) = await sampling, await writing
    await server.stop()
    return {
        "episodes": played,
        "blocked": blocked,
        "minibatches": drawn,
        "waited": pacing.waited_s / took_s,
    }


def measure(seconds: float) -> JSON:
    """Measure waits at a replay service in a directory of its own, which is removed.

    Args:
        seconds: Length of the measurement.
    """
    with tempfile.TemporaryDirectory(dir=".", prefix=".multi-queue-") as scratch:
        return asyncio.run(serve(Path(scratch), seconds))
