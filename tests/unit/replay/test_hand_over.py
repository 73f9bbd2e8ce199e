"""Hand-over of episodes by priority, and the buffer of those that stay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.replay.episodes import EpisodeLayout
from fullrank.training.container import EpisodeBuffer, HandOver, ReturnPriority

LAYOUT = EpisodeLayout(observation_sizes=(1,), action_sizes=(2,))


def episode(*rewards: float) -> FloatArray:
    rows = np.zeros((len(rewards) + 1, LAYOUT.row_size), np.float32)
    rows[:-1, LAYOUT.reward] = rewards
    rows[-1, LAYOUT.length] = len(rewards)
    return rows


def test_the_priority_is_the_return_between_its_bounds() -> None:
    priority = ReturnPriority(low=-10, high=10, floor=0.5)
    found = priority.of([episode(-4, -6), episode(0, 0, 5), episode(99), episode(-99)], LAYOUT)
    assert found.tolist() == [0.5, 1.25, 1.5, 0.5]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20))
def test_no_priority_is_zero(returns: list[float]) -> None:
    found = ReturnPriority().of([episode(each) for each in returns], LAYOUT)
    assert (found >= 0.1).all()
    assert (found <= 1.1 + 1e-12).all()


@pytest.mark.parametrize("bad", [{"low": 1, "high": 1}, {"floor": 0}])
def test_bounds_that_would_divide_by_zero_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="low below high, and a floor above 0"):
        ReturnPriority(**bad)


@given(
    share=st.floats(0, 1),
    sizes=st.lists(st.integers(0, 30), max_size=30),
    seed=st.integers(0, 2**31),
)
def test_the_share_that_travels_is_met_within_rounding(
    share: float, sizes: list[int], seed: int
) -> None:
    hand_over = HandOver(share, seed=seed, container=1)
    for size in sizes:
        chosen = hand_over.choose(np.random.default_rng(seed).random(size) + 0.1)
        assert chosen.tolist() == sorted({*chosen.tolist()})
        assert all(0 <= each < size for each in chosen)
        assert abs(hand_over.handed - share * hand_over.offered) <= 0.5


def test_equal_keys_draw_equally_and_containers_draw_apart() -> None:
    priorities = np.ones(40)
    one, same, other = (HandOver(0.5, seed=3, container=number) for number in (1, 1, 2))
    for _ in range(3):
        drawn = one.choose(priorities).tolist()
        assert drawn == same.choose(priorities).tolist()
        assert drawn != other.choose(priorities).tolist()


def test_episodes_travel_in_proportion_to_their_priority() -> None:
    hand_over, priorities = HandOver(0.25, seed=0, container=0), np.array([1.0, 2.0, 3.0, 4.0])
    drawn = [hand_over.choose(priorities) for _ in range(4000)]
    counts = np.bincount(np.concatenate(drawn), minlength=4)
    assert counts.sum() == 4000
    assert np.abs(counts / 4000 - priorities / 10).max() < 0.03


def test_an_impossible_share_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        HandOver(1.5, seed=0, container=0)


def test_a_buffer_keeps_the_newest_and_draws_by_powers_of_the_priority() -> None:
    buffer = EpisodeBuffer(2, exponent=2.0)
    buffer.add([episode(7.0)], np.array([100.0]))
    buffer.add([episode(1.0), episode(2.0)], np.array([1.0, 3.0]))
    assert len(buffer) == 2
    rows = buffer.draw(4000, np.random.default_rng(0))
    rewards = rows[::2, LAYOUT.reward]
    assert {*rewards.tolist()} == {1.0, 2.0}
    assert np.mean(rewards == 2.0) == pytest.approx(0.9, abs=0.02)


def test_an_exponent_of_zero_draws_uniformly() -> None:
    buffer = EpisodeBuffer(2, exponent=0.0)
    buffer.add([episode(1.0), episode(2.0)], np.array([1.0, 99.0]))
    rewards = buffer.draw(4000, np.random.default_rng(0))[::2, LAYOUT.reward]
    assert np.mean(rewards == 2.0) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("capacity", "exponent"), [(0, 1.0), (1, -1.0)])
def test_an_impossible_buffer_is_refused(capacity: int, exponent: float) -> None:
    with pytest.raises(ConfigError, match="at least 1 episode"):
        EpisodeBuffer(capacity, exponent=exponent)
