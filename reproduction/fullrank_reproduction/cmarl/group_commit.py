"""Claim C9, half of it: episodes stored as a group against episodes stored one by one.

Episodes have 27 kB, as those of `3m` with 40 steps. They pass through the inbox of a table that
grows by arrival: a turn at the table, a thread, the checks, the rows with their checksums, and with
fsync the disk. Both ways take turns over the same file.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np

from fullrank.common.types import FloatArray, RunTerm
from fullrank.replay import EpisodeLayout, RingFile, Table
from fullrank.replay.authorship import ENTRIES
from fullrank.replay.intake import Arrival, EpisodeOutcome, Fate, Intake, WrittenEpisode
from fullrank.replay.pace import Pace
from fullrank_replay.inbox import Inbox, QueuedEpisode
from fullrank_replay.pacing import Pacing

LAYOUT = EpisodeLayout(observation_sizes=(30,) * 3, action_sizes=(9,) * 3, state_size=48)
STEPS, CAPACITY, TURN, GROUP, CLAIM = 40, 20_000, 64, 16, 4.0
FREE = Pace(updates_per_episode=0.0, slack=0, window=1, warmup=0, max_lag=0)


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
    row_size = LAYOUT.row_size + ENTRIES
    storage = RingFile.create(path, row_size=row_size, capacity=CAPACITY, sync=sync)
    table = Table(storage, capacity=CAPACITY)
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
