"""Evaluation plays whole episodes on fixed seeds."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.training.worlds import SEED, Countdown, Endless, Ones, length, ones

from fullrank.algorithms import Player
from fullrank.algorithms.roles import Memory
from fullrank.common.errors import NoEnd
from fullrank.common.seeding import derive
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete
from fullrank.environments.base import Step
from fullrank.training import episodes
from fullrank.training.evaluation import Act, Greedy, evaluate, evaluate_and_close, random_actions


@given(copies=st.integers(1, 7), episodes=st.integers(1, 9))
def test_an_evaluation_does_not_depend_on_the_number_of_copies(copies: int, episodes: int) -> None:
    result = evaluate(Countdown(copies), ones, episodes, seed=SEED)
    lengths = [length(derive(SEED, "evaluation", number)) for number in range(episodes)]
    # blue earns 1 a step, red 1 an episode
    sides = {side: returns.tolist() for side, returns in result.side_returns.items()}
    assert sides == {"red": [1.0] * episodes, "blue": lengths}
    assert result.returns.tolist() == [n + 1.0 for n in lengths]
    assert result.lengths.tolist() == lengths


def test_an_environment_made_for_one_evaluation_is_closed_even_if_playing_fails() -> None:
    played, failed = Countdown(2), Countdown(2)
    result = evaluate_and_close(played, ones, 3, SEED)
    np.testing.assert_array_equal(result.returns, evaluate(Countdown(2), ones, 3, SEED).returns)
    with pytest.raises(IndexError):
        evaluate_and_close(
            failed, lambda observation, available=None: np.ones(2, dtype=np.float32), 3, SEED
        )
    assert played.closed
    assert failed.closed


def test_the_random_policy_is_uniform_over_its_actions() -> None:
    box = Continuous((-1.0, 2.0), (1.0, 6.0))
    agents = [
        AgentSpec(name="a", observation_size=1, action=Discrete(3)),
        AgentSpec(name="b", observation_size=1, action=box),
        AgentSpec(name="c", observation_size=1, action=Discrete(2)),
    ]
    observation = np.zeros((3000, 3), dtype=np.float32)
    action = random_actions(agents, seed=0)(observation)
    assert (action.shape, action.dtype.name) == ((3000, 7), "float32")
    for choice in (action[:, :3], action[:, 5:]):
        assert set(np.unique(choice)) == {0.0, 1.0}
        np.testing.assert_array_equal(choice.sum(axis=1), 1.0)
        np.testing.assert_allclose(choice.mean(axis=0), 1 / choice.shape[1], atol=0.05)
    np.testing.assert_allclose(action[:, 3:5].min(axis=0), box.low, atol=0.02)
    np.testing.assert_allclose(action[:, 3:5].max(axis=0), box.high, atol=0.02)
    np.testing.assert_allclose(action[:, 3:5].mean(axis=0), [0.0, 4.0], atol=0.1)


def test_the_random_policy_is_keyed() -> None:
    agents = [AgentSpec(name="a", observation_size=1, action=Discrete(5))]
    observation = np.zeros((20, 1), dtype=np.float32)

    def draws(seed: int) -> list[bytes]:
        act = random_actions(agents, seed=seed)
        return [act(observation).tobytes() for _ in range(3)]

    assert draws(1) == draws(1)
    assert len({*draws(1), *draws(2)}) == 6


class Still(Ones):
    """Acts alike without exploration."""

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        return ones(observation), memory


@pytest.mark.parametrize(
    ("act", "told"),
    [(ones, "^play does not end"), (Greedy(cast(Player, Still())), "^greedy play does not end")],
)
def test_an_episode_that_does_not_end_is_refused_after_so_many_steps(
    act: Act, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "LONGEST", 50)
    world = Endless(2)
    with pytest.raises(NoEnd, match=f"{told}: an episode has had 50 steps"):
        evaluate_and_close(world, act, 3, SEED)
    assert world._step.tolist() == [50, 50]
    assert world.closed


class OneEnds(Endless):
    """Episodes end in copy 0 alone."""

    def step(self, action: FloatArray) -> Step:
        step = super().step(action)
        return step._replace(ended=np.array([self._step[0] >= self.horizon, False]))

    horizon = 60


def test_a_stated_horizon_may_be_longer_and_episodes_that_do_not_count_need_no_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(episodes, "LONGEST", 50)
    assert evaluate(OneEnds(2), ones, 1, SEED).lengths.tolist() == [60]
    monkeypatch.setattr(OneEnds, "horizon", 0)
    assert evaluate(OneEnds(2), ones, 1, SEED).lengths.tolist() == [1]
