"""Claim C9: in a container neither actors nor the learner wait, and episodes move in batches.

*Waits*: a container of 13 actors plays `3m` (10 ms a step, which is slept) and learns its head, by
the objects of the collector's process. An actor waits between blocks, while the container shares
one out and takes newer parameters, and within a block from the end of its episode to that of the
longest; the learner waits while it takes no update.

*Groups*: episodes staged and accepted as one block against episodes of blocks of their own. Both
ways take turns at one service: messages, checks, digests, rows with their checksums, a turn at the
table, and with fsync the disk.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from fullrank.common.types import JSON, FloatArray, RunTerm
from fullrank.config.tree import RunConfig
from fullrank.net.channel import PLAINTEXT
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import Server
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.fence import Fence
from fullrank.replay.staging import Grant, block_digest, rows_digest
from fullrank.replay.store import Store
from fullrank.runs.events import EventLog
from fullrank.training.block_collection import BlockCollection
from fullrank.training.blocks import BlockKey
from fullrank.training.heads import Heads
from fullrank.v1 import replay_pb2
from fullrank.v1.controller_pb2 import CollectorMessage
from fullrank.wiring.containers import container_of, head_size_of
from fullrank.wiring.training import block_player_of, training_of
from fullrank_collector.block_play import ContainerPlay
from fullrank_collector.run_context import TimedPlayer
from fullrank_papers.cells import Cell, Results, settings_of
from fullrank_papers.claims import ClaimResult, Strength, Whose, judge, undecided
from fullrank_replay.servicer import ReplayServicer

STEP_S = 0.01
RUN_TERM = RunTerm("run", 1)
DEADLINE_S = 60.0
ACTORS_CLAIM, LEARNER_CLAIM, GROUP_CLAIM = 0.01, 0.05, 4.0
LAYOUT = EpisodeLayout(observation_sizes=(30,) * 3, action_sizes=(9,) * 3, state_size=48)
STEPS, TURN, GROUP = 40, 64, 16
REST_S = 0.01
"""Rest after a block: its three calls are as many as a server takes in it from one connection."""
RING_ROWS = 20_000
GRANT = Grant(most_rows=GROUP * (STEPS + 1), episodes=LAYOUT)
WAITS, GROUPS = "container-waits", "staging-groups"
WAYS: Final = {"memory": False, "fsync": True}
"""Acknowledgements, and whether they wait for the disk."""


def cells(config: RunConfig, *, seconds: float, turns: int) -> list[Cell]:
    """Waits in a container; group commit against one by one.

    Args:
        config: A run of one container.
        seconds: Length of the first measurement.
        turns: Turns of each way in the second.
    """
    config = replace(config, compute=replace(config.compute, emulate_step_s=STEP_S))
    return [
        Cell(
            name=WAITS,
            settings={"seconds": seconds, "run": settings_of(config)},
            compute=partial(measured, config, seconds),
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
        "C9 in kind: in a container neither actors nor its learner wait, and episodes are stored "
        "in groups."
    )
    if not {WAITS, GROUPS} <= results.keys():
        return undecided(claim, "`--only queues` measures it")
    waits, groups = results[WAITS], results[GROUPS]
    parts = {
        f"actors of a container wait {waits['between']:.1%} of their time between blocks and "
        f"{waits['lockstep']:.1%} for the longest episode (below 1 % in all)": (
            waits["between"] + waits["lockstep"] < ACTORS_CLAIM
        ),
        f"its learner {waits['idle']:.1%} (below 5 %)": waits["idle"] < LEARNER_CLAIM,
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
        strength=Strength("measured once, in one process and on a replay service"),
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
    """A controller, and the collector of its process, which stores one block after the other.

    Args:
        address: The service's.
    """

    def __init__(self, address: str) -> None:
        self._replay = ReplayClient(address, deadline_s=DEADLINE_S)
        self._replay.under(RUN_TERM)
        self._blocks = self._head = 0

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
        unstaged = await self._replay.accept(1, self._head, [digest], rows=len(rows), first=block)
        assert unstaged is None
        self._head += len(rows)

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
    server = Server(
        replay_pb2.DESCRIPTOR.services_by_name["ReplayService"],
        ReplayServicer(Store(home, sync=sync), Fence(home), EventLog()),
        security=PLAINTEXT,
        prebuilt=frozenset({"GetSamples"}),
    )
    client = Client(await server.start("127.0.0.1:0"))
    await client.open(RING_ROWS)
    times = [
        (await seconds(client, group=1), await seconds(client, group=GROUP)) for _ in range(turns)
    ]
    await client.close()
    await server.stop()
    return times


async def waits(config: RunConfig, seconds: float) -> JSON:
    """Let a container play and learn for a while, from the first block after its first update on.

    Args:
        config: The run.
        seconds: Length of the measurement.

    Returns:
        Numbers of blocks and updates, and shares of the time: in which an actor had no step to
        take between two blocks (``between``) or since its own episode had ended (``lockstep``), and
        in which the learner took no update (``idle``).
    """
    training = training_of(config)
    spec, free = training.environment, training.collector.collection
    assert isinstance(free, BlockCollection)
    begun = free.begin(0)
    training.collector.close()
    (section,) = begun.publication.sections
    heads = Heads(head_size_of(config, spec))
    container = container_of(config, spec, number=0, heads=heads)
    plays = ContainerPlay(container, config.containers, section=section, clock=time.monotonic)
    player = block_player_of(config, spec)
    blocks, playing_s, steps_s, began = 0, 0.0, 0.0, (0.0, 0.0, 0)

    async def ignore(message: CollectorMessage) -> None:
        """Hand nothing over: no other container is there."""

    learning = asyncio.create_task(plays.learn(ignore))
    with ThreadPoolExecutor(1) as pool:
        timed = TimedPlayer(player, pool=pool, settings=config.controller)
        for block in count():
            terms, began_s = plays.terms(begun, oldest=0), time.monotonic()
            if not began[0] and container.learner.updates:
                began = began_s, plays.learning_s, container.learner.updates
            if 0 < began[0] <= began_s - seconds and container.learner.updates > began[2]:
                break
            played = await timed.play(BlockKey(1, block), terms)
            if began[0]:
                took_s, lengths = time.monotonic() - began_s, played.outcomes.lengths
                blocks, playing_s = blocks + 1, playing_s + took_s
                steps_s += took_s * float(lengths.mean() / lengths.max())
            plays.share(played, version=0)
            learning.done() and learning.result()
    learning_s, updates = plays.learning_s - began[1], container.learner.updates - began[2]
    spent_s = began_s - began[0]
    learning.cancel()
    await asyncio.wait({learning})
    player.close()
    return {
        "blocks": blocks,
        "updates": updates,
        "between": 1 - playing_s / spent_s,
        "lockstep": (playing_s - steps_s) / spent_s,
        "idle": max(0.0, 1 - learning_s / spent_s),  # the first update began earlier
    }


def measured(config: RunConfig, seconds: float) -> JSON:
    """Measure the waits of a container in this process; see ``waits``."""
    return asyncio.run(waits(config, seconds))
