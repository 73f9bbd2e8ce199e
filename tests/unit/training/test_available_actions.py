"""Players and random policies take available actions only, and rows hold the masks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.training.worlds import SEED, Countdown, length, ones

from fullrank.algorithms import Player
from fullrank.algorithms.roles import Memory
from fullrank.common.seeding import derive
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete, Step
from fullrank.environments.capabilities import chosen_actions
from fullrank.replay.layout import Layout
from fullrank.training.evaluation import Greedy, evaluate, random_actions
from fullrank.training.rollouts import Rollout

MASKED = Layout(observation_sizes=(1, 1), action_sizes=(3, 2))


class Rotation:
    """Episodes of 2 to 4 steps, by seed; each agent may only choose the action of its step.

    Both agents are paid 1 a step, together; an episode of even length is won.
    """

    shared_reward = True

    def __init__(self, copies: int) -> None:
        self.agents: tuple[AgentSpec, ...] = (
            AgentSpec(name="a", observation_size=1, action=Discrete(3)),
            AgentSpec(name="b", observation_size=1, action=Discrete(2)),
        )
        self.copies = copies
        self._seed, self._step = np.zeros(copies, dtype=np.int64), np.zeros(copies, dtype=np.int64)

    def _observation(self) -> FloatArray:
        return np.repeat(self._step, 2).reshape(self.copies, 2).astype(np.float32)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        self._seed[copies], self._step[copies] = seeds, 0
        return self._observation()

    def available(self) -> BoolArray:
        parts = [np.arange(n) == (self._step % n)[:, None] for n in (3, 2)]
        return np.concatenate(parts, axis=1)

    def step(self, action: FloatArray) -> Step:
        everybody = np.ones((self.copies, 2), dtype=bool)
        chosen_actions(self.agents, action, available=self.available(), alive=everybody)
        self._step += 1
        return Step(
            observation=self._observation(),
            reward=np.ones((self.copies, 2)),
            terminated=~everybody,
            alive=everybody,
            ended=self._step >= length(self._seed),
        )

    def won(self) -> BoolArray:
        over = np.equal(self._step, length(self._seed))
        won: BoolArray = np.logical_and(over, self._step % 2 == 0)
        return won

    def close(self) -> None:
        pass


class Obedient:
    """An actor that takes the available actions, of which there is one for each agent."""

    def memory(self, copies: int) -> Memory:
        return ()

    def act(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray, **_: Any
    ) -> tuple[FloatArray, Memory]:
        return available.astype(np.float32), memory

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray
    ) -> tuple[FloatArray, Memory]:
        return available.astype(np.float32), memory


def test_players_are_told_the_available_actions() -> None:
    collected = Rollout(Rotation(3), cast(Player, Obedient()), MASKED, seed=SEED).collect(30, 0)
    assert len(collected.rows) == 90
    greedy = evaluate(Rotation(3), Greedy(cast(Player, Obedient())), 20, SEED)
    random = evaluate(Rotation(2), random_actions(Rotation(1).agents, seed=1), 20, SEED)
    np.testing.assert_array_equal(greedy.returns, random.returns)


def test_masked_transitions_hold_the_available_actions_before_and_after_the_step() -> None:
    layout = replace(MASKED, masked=True)
    rows = Rollout(Rotation(3), cast(Player, Obedient()), layout, seed=SEED).collect(8, 0).rows
    for part, observed in (
        (layout.available, layout.observation),
        (layout.next_available, layout.next_observation),
    ):
        for n, columns in ((3, slice(0, 3)), (2, slice(3, 5))):
            permitted = rows[:, part][:, columns]
            np.testing.assert_array_equal(permitted.argmax(1), rows[:, observed][:, 0] % n)
            np.testing.assert_array_equal(permitted.sum(1), 1.0)
    plain = Rollout(Rotation(3), cast(Player, Obedient()), MASKED, seed=SEED).collect(8, 0).rows
    np.testing.assert_array_equal(rows[:, : MASKED.row_size], plain)


def test_a_shared_reward_counts_once_and_wins_are_told() -> None:
    played = evaluate(Rotation(3), Greedy(cast(Player, Obedient())), 20, SEED)
    lengths = np.array([length(derive(SEED, "evaluation", number)) for number in range(20)])
    assert played.returns.tolist() == played.side_returns["team"].tolist() == lengths.tolist()
    assert played.won is not None
    assert played.won.tolist() == (lengths % 2 == 0).tolist()
    assert evaluate(Countdown(2), ones, 3, SEED).won is None
    collected = Rollout(Rotation(3), cast(Player, Obedient()), MASKED, seed=SEED).collect(30, 0)
    assert collected.won is not None
    assert collected.won.tolist() == (collected.returns % 2 == 0).tolist()


@given(before=st.integers(1, 12), copies=st.integers(1, 4))
def test_a_resumed_rollout_takes_available_actions_only(before: int, copies: int) -> None:
    def masked() -> Rollout:
        return Rollout(Rotation(copies), cast(Player, Obedient()), MASKED, seed=SEED)

    interrupted, resumed = masked(), masked()
    interrupted.collect(before, iteration=0)
    resumed.load(interrupted.mark()())
    one, other = (each.collect(5, iteration=1) for each in (interrupted, resumed))
    assert one.rows.tobytes() == other.rows.tobytes()


def test_staggered_starts_take_available_actions_only() -> None:
    player = cast(Player, Obedient())
    staggered = Rollout(Rotation(3), player, MASKED, seed=SEED, stagger=3)
    rows = staggered.collect(5, iteration=0).rows
    np.testing.assert_array_equal(rows[:3, MASKED.observation][:, 0], [0, 1, 2])


def test_the_random_policy_is_uniform_over_the_available_actions() -> None:
    agents = [
        AgentSpec(name="a", observation_size=1, action=Discrete(4)),
        AgentSpec(name="b", observation_size=1, action=Continuous((0.0,), (1.0,))),
        AgentSpec(name="c", observation_size=1, action=Discrete(2)),
    ]
    observation = np.zeros((3000, 3), dtype=np.float32)
    available = np.tile(np.array([0, 1, 0, 1, 1, 1, 0], dtype=bool), (3000, 1))
    action = random_actions(agents, seed=0)(observation, available)
    np.testing.assert_allclose(action.mean(axis=0), [0, 0.5, 0, 0.5, 0.5, 1, 0], atol=0.05)
    free = random_actions(agents, seed=0)(observation)
    everything = random_actions(agents, seed=0)(observation, np.ones((3000, 7), dtype=bool))
    np.testing.assert_array_equal(free, everything)
