"""Collection keeps every transition in order; evaluation plays whole episodes on fixed seeds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.algorithms import Player
from fullrank.algorithms.base import Memory
from fullrank.common.errors import CheckpointUnusable, EnvironmentFailed
from fullrank.common.seeding import derive
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete, Step, make_environment
from fullrank.environments.capabilities import chosen_actions
from fullrank.replay.layout import Layout
from fullrank.training.evaluation import Greedy, evaluate, evaluate_and_close, random_actions
from fullrank.training.rollouts import Rollout

SEED = 5
LAYOUT = Layout(observation_sizes=(2, 2), action_sizes=(1, 1))


class Countdown:
    """Episodes of 2 to 4 steps, by seed; both agents see (seed % 1000, step).

    Red earns 1 a step and terminates after its first one, blue earns its action.
    """

    def __init__(self, copies: int) -> None:
        box = Continuous((-9.0,), (9.0,))
        self.agents: tuple[AgentSpec, ...] = (
            AgentSpec(name="red_0", observation_size=2, action=box, side="red"),
            AgentSpec(name="blue_0", observation_size=2, action=box, side="blue"),
        )
        self.copies = copies
        self.seeds: list[tuple[int, int]] = []
        self.closed = False
        self._seed, self._step = np.zeros(copies, dtype=np.int64), np.zeros(copies, dtype=np.int64)

    def _observation(self) -> FloatArray:
        alive = np.stack([self._step < 1, self._step >= 0], axis=1)
        seen = np.stack([self._seed % 1000, self._step], axis=1)[:, None] * alive[..., None]
        return seen.reshape(self.copies, 4).astype(np.float32)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        self.seeds += zip(copies, seeds, strict=True)
        self._seed[copies], self._step[copies] = seeds, 0
        return self._observation()

    def step(self, action: FloatArray) -> Step:
        self._step += 1
        first = self._step == 1
        return Step(
            observation=self._observation(),
            reward=np.stack([first * 1.0, action[:, 1]], axis=1),
            terminated=np.stack([first, np.zeros_like(first)], axis=1),
            alive=np.stack([np.zeros_like(first), ~np.zeros_like(first)], axis=1),
            ended=self._step >= length(self._seed),
        )

    def close(self) -> None:
        self.closed = True


def length(seed: Any) -> Any:
    return 2 + seed % 3


class StepCounter:
    """An algorithm that acts only: blue's action is 10 * iteration + step."""

    def memory(self, copies: int) -> Memory:
        return ()

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        return np.where(alive, np.float32(10 * iteration + step), np.float32(0)), memory


def rollout(environment: Countdown, algorithm: object | None = None) -> Rollout:
    return Rollout(environment, cast(Player, algorithm or StepCounter()), LAYOUT, seed=SEED)


class Ones:
    """Blue always acts 1, so that its return is the length of the episode."""

    def memory(self, copies: int) -> Memory:
        return ()

    def act(
        self, observation: FloatArray, memory: Memory, *, alive: BoolArray, **_: Any
    ) -> tuple[FloatArray, Memory]:
        return alive.astype(np.float32), memory


def test_rows_go_step_by_step_and_copy_by_copy_within_a_step() -> None:
    rows = rollout(Countdown(3)).collect(2, iteration=4).rows
    assert rows.shape == (6, LAYOUT.row_size)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    numbers = [derive(SEED, "episode", copy, 0) % 1000 for copy in range(3)]
    blue = rows[:, LAYOUT.observation][:, 2:]
    assert blue.tolist() == [[n, t] for t in range(2) for n in numbers]
    assert rows[:, LAYOUT.action][:, 1].tolist() == [40, 40, 40, 41, 41, 41]
    assert rows[:, LAYOUT.reward][:, 1].tolist() == [40, 40, 40, 41, 41, 41]


def test_the_next_observation_is_of_the_same_episode() -> None:
    rows = rollout(Countdown(2)).collect(40, iteration=0).rows
    before, after = rows[:, LAYOUT.observation][:, 2:], rows[:, LAYOUT.next_observation][:, 2:]
    np.testing.assert_array_equal(after[:, 0], before[:, 0])
    np.testing.assert_array_equal(after[:, 1], before[:, 1] + 1)


def test_an_agent_that_is_gone_does_not_act() -> None:
    rows = rollout(Countdown(2)).collect(40, iteration=0).rows
    first = rows[:, LAYOUT.observation][:, 3] == 0
    assert 0 < first.sum() < len(rows)
    np.testing.assert_array_equal(rows[:, LAYOUT.alive][:, 0], first)
    np.testing.assert_array_equal(rows[:, LAYOUT.terminated][:, 0], first)
    assert rows[:, LAYOUT.alive][:, 1].all()
    assert not rows[:, LAYOUT.terminated][:, 1].any()


def test_episode_k_of_a_copy_starts_from_its_own_seed() -> None:
    environment = Countdown(2)
    rollout(environment).collect(40, iteration=0)
    for copy in range(2):
        seeds = [seed for own, seed in environment.seeds if own == copy]
        assert len(seeds) > 5
        assert seeds == [derive(SEED, "episode", copy, number) for number in range(len(seeds))]


def test_returns_are_of_the_episodes_that_ended_in_order() -> None:
    environment = Countdown(3)
    collected = rollout(environment, Ones()).collect(30, iteration=0)
    ends: list[tuple[int, int, int]] = []
    for copy in range(3):
        lengths = [length(seed) for own, seed in environment.seeds if own == copy]
        finished = [(end, copy, n) for end, n in zip(np.cumsum(lengths), lengths, strict=True)]
        ends += [entry for entry in finished if entry[0] <= 30]
    lengths = [n for _, _, n in sorted(ends)]
    assert collected.side_returns["blue"].tolist() == lengths
    assert collected.side_returns["red"].tolist() == [1.0] * len(lengths)
    assert collected.returns.tolist() == [n + 1.0 for n in lengths]
    assert list(collected.side_returns) == ["red", "blue"]


@given(cuts=st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_episodes_go_on_from_call_to_call(cuts: list[int]) -> None:
    whole = rollout(Countdown(2), Ones()).collect(sum(cuts), iteration=0)
    piecewise = rollout(Countdown(2), Ones())
    parts = [piecewise.collect(steps, iteration=0) for steps in cuts]
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), whole.rows)
    np.testing.assert_array_equal(np.concatenate([part.returns for part in parts]), whole.returns)


@given(before=st.integers(1, 12), after=st.integers(1, 6), copies=st.integers(1, 4))
def test_a_resumed_rollout_goes_on_in_the_midst_of_episodes(
    before: int, after: int, copies: int
) -> None:
    interrupted, resumed = rollout(Countdown(copies)), rollout(Countdown(copies))
    interrupted.collect(before, iteration=0)
    resumed.load(interrupted.state())
    for iteration in (1, 2):
        one, other = (each.collect(after, iteration=iteration) for each in (interrupted, resumed))
        assert one.rows.tobytes() == other.rows.tobytes()
        assert one.returns.tobytes() == other.returns.tobytes()


def test_only_the_actions_of_running_episodes_are_kept() -> None:
    going = rollout(Countdown(2))
    going.collect(100, iteration=0)
    assert len(going.state()["actions"]) == going.state()["episode_steps"].max() < 4


def test_an_environment_that_does_not_repeat_itself_is_named() -> None:
    class Drifting(Countdown):
        def __init__(self, drift: float) -> None:
            super().__init__(copies=8)
            self._drift = np.float32(drift)

        def step(self, action: FloatArray) -> Step:
            step = super().step(action)
            return step._replace(observation=step.observation + self._drift)

    interrupted, resumed = rollout(Drifting(0.0)), rollout(Drifting(1.0))
    interrupted.collect(1, iteration=0)  # episodes take two steps at least
    with pytest.raises(EnvironmentFailed, match="does not repeat itself"):
        resumed.load(interrupted.state())


def test_resuming_between_episodes_equals_going_on() -> None:
    def cooperative() -> Rollout:
        environment = make_environment("cooperative_navigation", copies=2, horizon=5)
        layout = Layout(observation_sizes=(18,) * 3, action_sizes=(5,) * 3)
        return Rollout(environment, cast(Player, Still()), layout, seed=SEED)

    going = cooperative()
    going.collect(10, iteration=0)
    resumed = cooperative()
    resumed.load(going.state())
    one, other = going.collect(10, iteration=1), resumed.collect(10, iteration=1)
    np.testing.assert_array_equal(one.rows, other.rows)
    assert len(one.returns) == 4
    np.testing.assert_array_equal(one.returns, other.returns)


class Still:
    def memory(self, copies: int) -> Memory:
        return ()

    def act(self, observation: FloatArray, memory: Memory, **_: Any) -> tuple[FloatArray, Memory]:
        return np.zeros((len(observation), 15), dtype=np.float32), memory


class Counting:
    """An actor that counts the steps of its episode and acts by the count."""

    def memory(self, copies: int) -> Memory:
        return (np.zeros((copies, 1), np.float32),)

    def act(
        self, observation: FloatArray, memory: Memory, *, alive: BoolArray, **_: Any
    ) -> tuple[FloatArray, Memory]:
        (steps,) = memory
        return alive * steps, (steps + 1,)

    def act_greedily(
        self, observation: FloatArray, memory: Memory, **_: Any
    ) -> tuple[FloatArray, Memory]:
        (steps,) = memory
        return np.repeat(steps, 2, axis=1), (steps + 1,)


def test_memory_lasts_for_an_episode_and_no_longer() -> None:
    rows = rollout(Countdown(2), Counting()).collect(9, iteration=0).rows
    seen = rows[:, LAYOUT.action].max(axis=1).reshape(9, 2)
    began = np.where(np.diff(seen, axis=0, prepend=0.0) <= 0, 0.0, seen)
    assert (seen[0] == 0).all()
    assert (began[began > 0] <= 4).all()
    assert ((np.diff(seen, axis=0) == 1) | (seen[1:] == 0)).all()
    assert (seen[1:] == 0).any()


def test_memory_goes_on_where_a_resumed_run_goes_on() -> None:
    going, stopped, resumed = (rollout(Countdown(2), Counting()) for _ in range(3))
    whole = [going.collect(1, iteration=step).rows for step in range(6)]
    for step in range(3):
        stopped.collect(1, iteration=step)
    resumed.load(stopped.state())
    for step in range(3, 6):
        np.testing.assert_array_equal(resumed.collect(1, iteration=step).rows, whole[step])


def test_an_evaluation_begins_every_episode_without_memory() -> None:
    alone, together = (
        evaluate(Countdown(copies), Greedy(cast(Player, Counting())), 6, SEED) for copies in (1, 3)
    )
    np.testing.assert_array_equal(alone.returns, together.returns)
    assert alone.returns.any()


def test_a_state_of_other_copies_is_refused() -> None:
    with pytest.raises(CheckpointUnusable, match="3 copies"):
        rollout(Countdown(3)).load(rollout(Countdown(2)).state())
    with pytest.raises(CheckpointUnusable, match="3 copies"):
        rollout(Countdown(3)).load({})


def ones(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
    return np.ones((len(observation), 2), dtype=np.float32)


@given(copies=st.integers(1, 7), episodes=st.integers(1, 9))
def test_an_evaluation_does_not_depend_on_the_number_of_copies(copies: int, episodes: int) -> None:
    result = evaluate(Countdown(copies), ones, episodes, seed=SEED)
    lengths = [length(derive(SEED, "evaluation", number)) for number in range(episodes)]
    # blue earns 1 a step, red 1 an episode
    sides = {side: returns.tolist() for side, returns in result.side_returns.items()}
    assert sides == {"red": [1.0] * episodes, "blue": lengths}
    assert result.returns.tolist() == [n + 1.0 for n in lengths]


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
    resumed.load(interrupted.state())
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
