"""Updates and episodes keep the run's ratio, and one of them may always go on."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import InvalidContribution
from fullrank.replay.pace import Pace

RATIOS = st.sampled_from([0.0, 2**-20, 0.01, 0.1, 1 / 3, 0.7, 1.0, 1.5, 3.0, 7.3, 2.0**20])
PACES = st.builds(
    Pace,
    updates_per_episode=RATIOS,
    slack=st.integers(0, 8),
    window=st.integers(1, 8),
    warmup=st.integers(0, 10),
    max_lag=st.integers(0, 4),
)


@given(pace=PACES, episodes=st.integers(0, 2**40), iteration=st.integers(0, 2**40))
def test_whoever_waits_the_other_may_go_on(pace: Pace, episodes: int, iteration: int) -> None:
    updates = pace.may_update(iteration, episodes=episodes)
    assert updates or pace.may_store(episodes, iteration=iteration)
    assert updates == (pace.due(iteration) <= episodes)


@pytest.mark.parametrize("max_lag", [0, 1, 4])
def test_no_schedule_of_players_and_updates_deadlocks_or_exceeds_window_or_lag(
    max_lag: int,
) -> None:
    """Try a thousand schedules of 80 turns with paces drawn at random."""
    generator = np.random.default_rng(max_lag)
    for _ in range(1000):
        slack, window, warmup = generator.integers((0, 1, 0), (9, 9, 11)).tolist()
        pace = Pace(
            updates_per_episode=float(generator.choice([0.01, 0.1, 1 / 3, 0.7, 1.0, 1.5, 7.3])),
            slack=slack,
            window=window,
            warmup=warmup,
            max_lag=max_lag,
        )
        run(pace, generator.integers(0, 5, size=80).tolist())


def run(pace: Pace, turns: list[int]) -> None:
    """Turn 0 asks for the next update; the others play, each with the parameters it began with.

    A player that has to wait, or an update that does, loses its turn, and then the other side must
    be able to go on.
    """
    episodes = iteration = 0
    began: dict[int, int] = dict.fromkeys(range(1, 5), 0)
    for turn in turns:
        updates = pace.may_update(iteration, episodes=episodes)
        stores = pace.may_store(episodes, iteration=iteration)
        assert updates or stores
        if turn == 0 and updates:
            assert iteration <= pace.updates_per_episode * (episodes - pace.warmup + pace.slack)
            iteration += 1
        elif turn and stores:
            if not pace.is_stale(began[turn], iteration=iteration):
                assert iteration - began[turn] <= pace.max_lag
                episodes += 1
                ahead = episodes - pace.warmup - pace.window
                assert pace.updates_per_episode * ahead <= iteration
            began[turn] = iteration  # a dropped episode is followed by one of newest parameters


@given(pace=PACES.filter(lambda pace: pace.updates_per_episode > 0.1))
def test_updates_alone_and_episodes_alone_come_to_a_halt(pace: Pace) -> None:
    episodes = pace.warmup + 1
    iteration = 0
    most = pace.updates_per_episode * (1 + pace.slack)
    while iteration < 1000 and pace.may_update(iteration, episodes=episodes):
        iteration += 1
    assert iteration == 1000 or iteration > most
    stored = 0
    while pace.may_store(stored, iteration=0):
        stored += 1
    assert stored == pace.warmup + pace.window


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"updates_per_episode": -1.0}, "updates_per_episode is -1.0"),
        ({"updates_per_episode": float("nan")}, "updates_per_episode is nan"),
        ({"updates_per_episode": 1e-30}, "updates_per_episode is 1e-30"),
        ({"window": 0}, "window is 0"),
        ({"slack": -1}, "slack is -1"),
    ],
)
def test_an_impossible_pace_is_refused_by_field(fields: Mapping[str, float], named: str) -> None:
    valid = {"updates_per_episode": 1.0, "slack": 0, "window": 1, "warmup": 0, "max_lag": 0}
    with pytest.raises(InvalidContribution, match=rf"pace\.{named}"):
        Pace(**{**valid, **fields})  # type: ignore[arg-type]
