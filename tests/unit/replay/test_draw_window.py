"""Blocks and iterations keep the run's pace: lag never exceeds its bound, and every wait ends."""

from dataclasses import dataclass

import numpy as np
import pytest

from fullrank.replay.pace import DrawWindow, Pace
from fullrank.replay.staging import AcceptedBlock

CAPACITY, NEWEST = 60, 40
PACE = Pace(episodes_per_update=2, window=4, warmup=3, max_lag=1)
FREE = Pace(episodes_per_update=0, window=1, warmup=1, max_lag=9)


def window_of(pace: Pace, *, following: int = 0, head: int = 0, **facts: int | None) -> DrawWindow:
    return DrawWindow(
        pace,
        capacity=CAPACITY,
        newest=NEWEST,
        following=following,
        head=head,
        episodes=facts.get("episodes"),
    )


def block(version: int = 0, *, episodes: int = 1, rows: int = 2) -> AcceptedBlock:
    return AcceptedBlock(1, 0, version, rows, episodes, "")


def accepted(window: DrawWindow, *, most: int = 100, **facts: int) -> int:
    """Accept blocks of an episode as long as they are admitted; returns their number."""
    each, count = block(**facts), 0
    while count < most and window.admits(rows=each.rows, episodes=each.episodes):
        window.accept(each)
        count += 1
    return count


def test_an_iteration_waits_for_its_episodes_and_blocks_beyond_the_window_wait_for_it() -> None:
    window = window_of(PACE)
    window.asked()
    assert [PACE.due(iteration) for iteration in range(3)] == [3, 5, 7]
    assert (window.missing, accepted(window), window.missing) == (3, 3 + 4, 0)
    window.draw()
    assert accepted(window) == 0
    window.asked()
    assert accepted(window) == 2


def test_a_block_larger_than_the_window_is_accepted_while_an_iteration_waits_for_episodes() -> None:
    window = window_of(PACE)
    assert window.admits(rows=2, episodes=100)
    window.accept(block(episodes=7))
    assert not window.admits(rows=2, episodes=1)
    window.draw()
    assert not window.admits(rows=2, episodes=100)


def test_a_draw_names_the_blocks_that_none_before_could_draw_and_the_oldest_of_them() -> None:
    window = window_of(PACE, following=7, head=10, episodes=30)
    window.asked()
    for version in (7, 6):
        window.accept(block(version, rows=3))
    reached = window.draw()
    assert (reached.head, reached.episodes, reached.lag) == (16, 32, 1)
    assert [each.version for each in reached.blocks] == [7, 6]
    assert (window.oldest, window.draw().blocks) == (8 - PACE.max_lag, [])


def test_an_empty_table_is_warmed_up_and_owes_nothing_for_earlier_iterations() -> None:
    assert window_of(PACE, following=1000).missing == PACE.warmup
    assert window_of(PACE, following=1000, head=9, episodes=2003).missing == 0
    assert window_of(FREE, following=1000).missing == 1


def test_the_range_of_a_draw_is_kept_until_the_next_iteration_asks() -> None:
    window = window_of(FREE, head=50, episodes=9)
    window.draw()
    accepted(window, rows=10)
    assert window.head - CAPACITY == 50 - NEWEST
    window.asked()
    accepted(window, rows=10)
    assert window.head - CAPACITY == 50  # the iteration has drawn up to here


def test_no_row_is_evicted_that_no_iteration_could_have_drawn() -> None:
    window = window_of(FREE)
    assert accepted(window, most=200) == 200  # a warm-up fills the table
    window.draw()
    window.asked()
    assert 2 * accepted(window) == CAPACITY


@dataclass
class Collector:
    """Plays with the newest version that it has; its block waits to be accepted."""

    version: int | None = None


class FreeRun:
    """A run in virtual time: each turn moves one collector or the controller."""

    def __init__(self, pace: Pace, generator: np.random.Generator) -> None:
        self.pace, self.generator = pace, generator
        self.committed = self.published = 0
        self.drawing = False
        self.collectors = [Collector() for _ in range(3)]
        self.log: list[tuple[int, int]] = []
        """Head and episodes of each committed draw."""
        self.window = self.opened()

    def opened(self) -> DrawWindow:
        """The window of a new controller, whose table ends at the last committed draw."""
        head, episodes = self.log[-1] if self.log else (0, None)
        window = window_of(self.pace, following=self.committed, head=head, episodes=episodes)
        window.asked()
        return window

    def control(self) -> None:
        """Commit the iteration that is computed, or try to begin the next."""
        if self.drawing:
            self.drawing = False
            self.committed += 1
            self.window.asked()
        elif not self.window.missing:
            reached = self.window.draw()
            assert reached.lag <= self.pace.max_lag
            self.log.append((reached.head, reached.episodes))
            self.drawing = True

    def play(self, collector: Collector) -> None:
        """Begin a block with published parameters that are fresh enough, or offer it."""
        if collector.version is None:
            collector.version = self.published if self.published >= self.window.oldest else None
        elif self.window.admits(rows=2, episodes=2):
            if collector.version >= self.window.oldest:
                self.window.accept(block(collector.version, episodes=2))
            collector.version = None

    def fault(self) -> None:
        """Kill a collector, or let another controller take over."""
        victim = int(self.generator.integers(2 * len(self.collectors)))
        if victim < len(self.collectors):
            self.collectors[victim] = Collector()
        else:
            self.drawing = False
            self.log = self.log[: self.committed]
            self.collectors = [Collector() for _ in self.collectors]
            self.window = self.opened()

    def turn(self) -> None:
        """Let one of them do something."""
        choice = self.generator.random()
        if choice < 0.7:
            self.play(self.collectors[self.generator.integers(len(self.collectors))])
        elif choice < 0.85:
            self.control()
        elif choice < 0.97:
            self.published = self.committed
        else:
            self.fault()


@pytest.mark.parametrize(
    ("max_lag", "schedules"),
    [(1, 25), *(pytest.param(lag, 250, marks=pytest.mark.thorough) for lag in (0, 1, 4, 50))],
)
def test_whatever_dies_lag_keeps_its_bound_and_the_run_goes_on(
    max_lag: int, schedules: int
) -> None:
    """Schedules in virtual time; none takes more turns than a slow one needs."""
    generator = np.random.default_rng(max_lag)
    for _ in range(schedules):
        each, window, warmup = generator.integers((1, 1, 1), (6, 9, 8)).tolist()
        pace = Pace(episodes_per_update=each, window=window, warmup=warmup, max_lag=max_lag)
        run, turns = FreeRun(pace, generator), 0
        while run.committed < 4:
            run.turn()
            turns += 1
            assert turns < 20_000, "all wait"
