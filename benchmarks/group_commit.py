"""Claim: 16 episodes stored as a group take at most a quarter of the time of 16 stored one by one.

Episodes have 27 kB, as those of `3m` with 40 steps. They pass through the inbox of a table that
grows by arrival: a turn at the table, a thread, the checks, the rows with their checksums, and with
fsync the disk. Both ways take turns of 64 episodes over the same file; ratios of adjacent turns,
medians of all. Exits with 1 if the median ratio is below 4 with `replay.acknowledge = "fsync"` or
with `memory`.

    OMP_NUM_THREADS=1 python benchmarks/group_commit.py
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median

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


class Source:
    """A writer without a line."""

    run_term = RunTerm("run", 1)

    def __init__(self) -> None:
        self._left, self._done = 0, asyncio.Event()

    def settle(self, sequence: int, outcome: EpisodeOutcome) -> None:
        assert outcome.fate is Fate.STORED
        self._left -= 1
        if not self._left:
            self._done.set()

    def fail(self, error: Exception) -> None:
        raise error

    async def settled(self, episodes: int) -> None:
        """Wait until that many more episodes are stored."""
        self._left = episodes
        self._done.clear()
        await self._done.wait()


async def seconds(inbox: Inbox, source: Source, sequences: "count[int]", *, group: int) -> float:
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

    inbox, source, sequences = Inbox(intake, Pacing(), commit), Source(), count(1)
    alone, grouped = [], []
    for _ in range(turns):
        alone.append(await seconds(inbox, source, sequences, group=1))
        before = inbox.groups
        grouped.append(await seconds(inbox, source, sequences, group=GROUP))
        assert inbox.groups - before == TURN // GROUP
    return alone, grouped


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=25, help="turns of each way")
    options = parser.parse_args(arguments)
    holds = True
    print("| acknowledged | one by one, ms | 16 at once, ms | ratio (quartiles) |")
    print("|---|---|---|---|")
    for name, sync in (("memory", False), ("fsync", True)):
        with tempfile.TemporaryDirectory(dir=".", prefix=".group-commit-") as scratch:
            path = Path(scratch) / "t.table"
            alone, grouped = asyncio.run(compare(path, sync=sync, turns=options.turns))
        ratios = [one / other for one, other in zip(alone, grouped, strict=True)]
        low, high = np.quantile(ratios, (0.25, 0.75))
        print(
            f"| {name} | {1e3 * median(alone):.2f} | {1e3 * median(grouped):.2f} | "
            f"{median(ratios):.1f} ({low:.1f} to {high:.1f}) |"
        )
        holds &= median(ratios) >= CLAIM
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
