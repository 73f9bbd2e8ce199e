"""Lag never exceeds its bound and every wait ends, in any order of deaths."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from fullrank.common.types import FloatArray
from fullrank.replay import EpisodeLayout, MemoryStorage, Table
from fullrank.replay.authorship import ENTRIES, authorships
from fullrank.replay.intake import Arrival, Fate, Intake, WrittenEpisode
from fullrank.replay.pace import Pace

LAYOUT = EpisodeLayout(observation_sizes=(1,), action_sizes=(2,))
CAPACITY = 400
WINDOW = 4
"""Episodes that a collector may have sent and not settled."""


def rows_of(sequence: int) -> FloatArray:
    """An episode of one step."""
    rows = np.zeros((2, LAYOUT.row_size), np.float32)
    rows[:, LAYOUT.observation] = sequence
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = 1
    return rows


@dataclass
class Collector:
    """Plays with the newest version that it has; keeps what is not settled."""

    writer: int
    version: int = 0
    outdated: int = -1
    sequence: int = 0
    began: int | None = None
    sent: list[WrittenEpisode] = field(default_factory=list)

    def turn(self) -> None:
        """Finish the episode under way, or begin another one."""
        if self.began is not None:
            self.sequence += 1
            rows = rows_of(self.sequence)
            self.sent.append(WrittenEpisode(self.writer, self.sequence, self.began, rows))
            self.began = None
        elif len(self.sent) < WINDOW and self.version > self.outdated:
            self.began = self.version


class FreeRun:
    """A run in virtual time: each turn moves one collector, the service or the controller."""

    def __init__(self, pace: Pace, generator: np.random.Generator) -> None:
        self.generator, self.arrival = generator, Arrival(episodes=LAYOUT, pace=pace)
        storage = MemoryStorage(CAPACITY, LAYOUT.row_size + ENTRIES)
        self.table = Table(storage, capacity=CAPACITY)
        self.intake = Intake(self.table, self.arrival)
        self.iteration = self.writers = 0
        self.computing = False
        self.heads: list[int] = [0]
        self.collectors = [self.collector() for _ in range(3)]
        self.acknowledged: set[tuple[int, int]] = set()

    def collector(self) -> Collector:
        """A new process, which is sent the newest parameters."""
        self.writers += 1
        return Collector(self.writers, version=self.iteration)

    def control(self) -> None:
        """Commit the iteration that is computed, or try to begin the next."""
        if self.computing:
            self.iteration, self.computing = self.iteration + 1, False
            return
        draws = self.intake.draws
        draws.asked(self.iteration)
        if draws.may_draw(self.iteration):
            reach = draws.draw(newest=CAPACITY)
            assert reach.lag <= self.arrival.pace.max_lag
            self.check(reach.head)
            draws.gathered(self.iteration)
            self.heads.append(reach.head)
            self.computing = True

    def check(self, head: int) -> None:
        """Everything that this iteration can draw first is young enough."""
        positions = np.arange(max(self.heads[-1], self.table.tail), head)
        every = authorships(self.table.entries(positions, slice(-ENTRIES, None)))
        versions = every[every[:, 3] > 0][:, 2]
        assert (self.iteration - versions <= self.arrival.pace.max_lag).all()

    def store(self) -> None:
        """Store what is admitted of what one collector sent, and perhaps lose the answer."""
        collector = self.collectors[self.generator.integers(len(self.collectors))]
        group = collector.sent[: self.intake.admitted(collector.sent)]
        outcomes = self.intake.store(group)
        lost = self.generator.random() < 0.1
        for episode, outcome in zip(group, outcomes, strict=True):
            if outcome.fate in (Fate.STORED, Fate.REPEATED):
                self.acknowledged.add((episode.writer, episode.sequence))
            if not lost:
                collector.sent.remove(episode)
                if outcome.fate is Fate.STALE:
                    collector.outdated = max(collector.outdated, episode.version)

    def fault(self) -> None:
        """Kill a collector, restart the service, or let another controller take over."""
        match self.generator.integers(3):
            case 0:
                victim = self.generator.integers(len(self.collectors))
                self.collectors[victim] = self.collector()
            case 1:
                self.intake = Intake(self.table, self.arrival)
            case _:
                self.intake, self.computing = Intake(self.table, self.arrival), False
                for collector in self.collectors:
                    collector.version, collector.outdated = self.iteration, -1

    def turn(self) -> None:
        """Let one of them do something."""
        choice = self.generator.random()
        if choice < 0.5:
            self.collectors[self.generator.integers(len(self.collectors))].turn()
        elif choice < 0.75:
            self.store()
        elif choice < 0.87:
            self.control()
        elif choice < 0.97:  # a publication arrives
            collector = self.collectors[self.generator.integers(len(self.collectors))]
            collector.version = self.iteration
        else:
            self.fault()

    def assert_once(self) -> None:
        """Every acknowledged episode is in the table once."""
        positions = np.arange(self.table.tail, self.table.head)
        every = authorships(self.table.entries(positions, slice(-ENTRIES, None)))
        held = [tuple(each) for each in every[every[:, 3] > 0][:, :2].tolist()]
        assert len(held) == len(set(held))
        if not self.table.tail:
            assert set(held) >= self.acknowledged


@pytest.mark.parametrize(
    ("max_lag", "schedules"),
    [(1, 25), *(pytest.param(lag, 250, marks=pytest.mark.thorough) for lag in (0, 1, 4, 50))],
)
def test_whatever_dies_lag_keeps_its_bound_and_the_run_goes_on(
    max_lag: int, schedules: int
) -> None:
    """Schedules in virtual time, a thousand in all; none takes more turns than a slow one needs."""
    generator = np.random.default_rng(max_lag)
    for _ in range(schedules):
        each, window, warmup = generator.integers((1, 1, 1), (6, 9, 8)).tolist()
        pace = Pace(
            updates_per_episode=1 / each, slack=0, window=window, warmup=warmup, max_lag=max_lag
        )
        run, turns = FreeRun(pace, generator), 0
        while run.iteration < 4:
            run.turn()
            turns += 1
            assert turns < 20_000, "all wait"
        run.assert_once()


def test_what_is_reopened_takes_no_episode_before_an_iteration_asks() -> None:
    pace = Pace(updates_per_episode=1.0, slack=0, window=9, warmup=1, max_lag=1)
    run = FreeRun(pace, np.random.default_rng(0))
    run.intake.store([WrittenEpisode(1, 1, 0, rows_of(1))])
    reopened = Intake(run.table, run.arrival)
    late = [WrittenEpisode(1, 2, 0, rows_of(2))]
    assert reopened.admitted(late) == 0
    reopened.draws.asked(2)
    assert reopened.admitted(late) == 1
    assert reopened.store(late)[0].fate is Fate.STALE


def test_a_table_that_was_lost_is_warmed_up_and_owes_nothing_for_earlier_iterations() -> None:
    fresh = Pace(updates_per_episode=0.5, slack=0, window=9, warmup=3, max_lag=1, first=1000)
    assert [fresh.due(iteration) for iteration in (0, 1000, 1001)] == [3, 3, 5]
    assert fresh.may_store(0, iteration=0)
    arrival = Arrival(episodes=LAYOUT, pace=fresh)
    later = Arrival(episodes=LAYOUT, pace=Pace(**{**arrival.to_json()["pace"], "first": 2000}))
    assert later.following(arrival.to_json()).pace.first == 1000
    assert later.following(None).pace.first == 2000
