"""Collection of whole episodes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.trajectories import ValueActor
from fullrank.common.errors import CheckpointUnusable, EnvironmentFailed
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import AgentSpec, Discrete, Step
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout, episodes_in
from fullrank.training import episodes as limits
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.block_player import BlockPlayer
from fullrank.training.blocks import BlockPlan
from fullrank.training.evaluation import AS_PAID, RewardScale, random_reward_scale
from fullrank.training.rollouts import Collected
from fullrank.training.whole_episodes import EpisodeRound

AGENTS = tuple(AgentSpec(name=f"a{i}", observation_size=2, action=Discrete(3)) for i in range(2))
LAYOUT = EpisodeLayout(observation_sizes=(2, 2), action_sizes=(3, 3), state_size=3)


class Countdown:
    """Copy c ends after 2 + seed % 4 steps; agent 1 dies after the first step.

    Observations hold the step and the seed, states also the number of copies. Even seeds
    terminate, odd ones are cut off.
    """

    agents = AGENTS
    state_size = 3
    shared_reward = True

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.seeds, self.steps = np.zeros(copies, int), np.zeros(copies, int)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        self.seeds[list(copies)] = np.array(seeds) % 100
        self.steps[list(copies)] = 0
        return self._observation()

    def _observation(self) -> FloatArray:
        own = np.stack([self.steps, self.seeds], axis=1)
        return np.tile(own, (1, 2)).astype(np.float32)

    def state(self) -> FloatArray:
        count = np.full(self.copies, self.copies)
        return np.stack([self.steps, self.seeds, count], axis=1).astype(np.float32)

    def step(self, action: FloatArray) -> Step:
        self.steps += 1
        ended = self.steps == 2 + self.seeds % 4
        terminated = np.stack([ended & (self.seeds % 2 == 0), self.steps == 1], axis=1)
        reward = np.repeat((10.0 * self.steps + self.seeds)[:, None], 2, axis=1)
        alive = np.stack([~ended, np.zeros_like(ended)], axis=1)
        return Step(self._observation(), reward, terminated, alive, ended)

    def close(self) -> None:
        pass


class MaskedCountdown(Countdown):
    """The action of step t is not available in step t."""

    def available(self) -> BoolArray:
        free = np.arange(3) != (self.steps % 3)[:, None]
        dead = np.arange(3) == 0
        second = np.where((self.steps > 0)[:, None], dead, free)
        return np.concatenate([free, second], axis=1)


class Waiting(MaskedCountdown):
    """Copies that ended stay as they are; counts the episodes that they begin."""

    pauses = True

    def __init__(self, copies: int) -> None:
        super().__init__(copies)
        self.begun = np.zeros(copies, int)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        self.begun[list(copies)] += 1
        return super().reset(seeds, copies)

    def step(self, action: FloatArray) -> Step:
        self.steps -= self.steps == 2 + self.seeds % 4
        return super().step(action)


class Timed(Countdown):
    """Every episode has four steps."""

    horizon = 4

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        return super().reset([seed // 4 * 4 + 2 for seed in seeds], copies)


def collection(copies: int, *, kind: type[Countdown] = MaskedCountdown) -> KeyedCollection:
    """Whole episodes of all copies, one block in each iteration."""
    environment, plan = kind(copies), BlockPlan(copies, copies)
    player = BlockPlayer(kind, algorithm(), plan, seed=3, environment=environment)
    return KeyedCollection(environment, algorithm(), lambda: player, plan=plan, lag=0)


def algorithm() -> Algorithm:
    spec = EnvironmentSpec(agents=AGENTS, state_size=3)
    return QMIX(hidden=4, exploration_steps=50).make(spec, seed=0, device="cpu")


def episodes(collected: Collected) -> list[FloatArray]:
    return [collected.rows[place] for place in episodes_in(collected.rows, LAYOUT.length)]


def test_a_whole_episode_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 2 + 3
    monkeypatch.setattr(limits, "LONGEST", longest)
    assert max(map(len, episodes(collection(9).collect(0)))) == longest + 1
    monkeypatch.setattr(limits, "LONGEST", longest - 1)
    with pytest.raises(
        EnvironmentFailed, match="whole has had 4 steps and has not ended; give the environment a"
    ):
        collection(9).collect(0)


def test_an_error_of_the_algorithm_is_no_fault_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def act(*_: object, **__: object) -> None:
        raise KeyError("values")

    monkeypatch.setattr(ValueActor, "act", act)
    said = r"step 0: the algorithm raised KeyError\('values'\) in .*test_whole_episodes.py:\d+$"
    with pytest.raises(EnvironmentFailed, match=said):
        collection(5).collect(0)


def test_each_copy_plays_one_whole_episode() -> None:
    collected = collection(5).collect(0)
    played = episodes(collected)
    assert len(played) == 5
    assert len({len(rows) for rows in played}) > 1
    for rows, total in zip(played, collected.returns.tolist(), strict=True):
        steps, seed = len(rows) - 1, int(rows[0, 1])
        assert steps == 2 + seed % 4
        np.testing.assert_array_equal(rows[:, LAYOUT.observation.start], np.arange(steps + 1))
        np.testing.assert_array_equal(
            rows[:, LAYOUT.state], [[t, seed, 5] for t in range(steps + 1)]
        )
        np.testing.assert_array_equal(
            rows[:-1, LAYOUT.reward], 10.0 * np.arange(1, steps + 1) + seed
        )
        assert rows[:, LAYOUT.reward].sum() == total
        assert rows[:, LAYOUT.terminated].tolist() == [0.0] * (steps - 1) + [seed % 2 == 0, 0.0]


def test_copies_that_can_wait_play_no_more_than_the_episode_that_counts() -> None:
    waiting, idling = collection(5, kind=Waiting), collection(5)
    for iteration in range(3):
        played, expected = (own.collect(iteration) for own in (waiting, idling))
        np.testing.assert_array_equal(played.rows, expected.rows)
        assert played.statistics == expected.statistics
    environment = waiting._environment
    assert isinstance(environment, Waiting)
    assert environment.begun.tolist() == [3] * 5


def test_actions_are_available_and_dead_agents_take_their_only_one() -> None:
    for rows in episodes(collection(5).collect(0)):
        available = rows[:, LAYOUT.available].reshape(len(rows), 2, 3)
        action = rows[:-1, LAYOUT.action].astype(int)
        taken = np.take_along_axis(available[:-1], action[..., None], axis=2)
        assert taken.all()
        assert (action[1:, 1] == 0).all()


def test_agents_that_cannot_act_have_no_action_without_masks() -> None:
    for rows in episodes(collection(5, kind=Countdown).collect(0)):
        available = rows[:, LAYOUT.available].reshape(len(rows), 2, 3)
        assert available[:-1, 0].all()
        assert available[0, 1].all()
        assert not available[1:, 1].any()
        assert (rows[1:-1, LAYOUT.action.start + 1] == NO_ACTION).all()


def test_a_collection_is_repeated_by_its_state() -> None:
    first = collection(4)
    first.collect(0)
    state = first.state(resume_at=1)
    expected = first.collect(1)
    again = collection(4)
    again.load(state, resume_at=1)
    np.testing.assert_array_equal(again.collect(1).rows, expected.rows)


def test_exploration_falls_with_the_steps_that_were_played() -> None:
    """With 50 steps until the end of the schedule, later actions are mostly those of the policy."""
    playing = collection(8)
    seen = [playing.collect(iteration).statistics["epsilon"] for iteration in range(6)]
    assert seen[0] == 1.0
    assert seen[1] < 1.0
    assert seen[-1] == pytest.approx(0.05)


def test_a_scale_changes_the_rewards_of_rows_and_not_the_returns() -> None:
    plain, scaled = (
        EpisodeRound(MaskedCountdown(3), algorithm().actor, LAYOUT, scale)
        for scale in (AS_PAID, RewardScale(8, 4))
    )
    for round_ in (plain, scaled):
        round_.play([5, 6, 7], iteration=0, first_step=0)
    paid, last = plain.rows[:, LAYOUT.reward], plain.rows[:, LAYOUT.length] > 0
    np.testing.assert_array_equal(scaled.rows[:, LAYOUT.reward], np.where(last, 0, (paid - 8) / 4))
    np.testing.assert_array_equal(scaled.outcomes.earned, plain.outcomes.earned)


@pytest.mark.parametrize("state_size", [0, 3])
def test_a_clock_is_the_last_entry_of_the_state_and_changes_nothing_else(state_size: int) -> None:
    plain = replace(LAYOUT, state_size=state_size)
    timed = replace(plain, clock=8)
    rows = {}
    for layout in (plain, timed):
        round_ = EpisodeRound(MaskedCountdown(3), algorithm().actor, layout, AS_PAID)
        round_.play([5, 6, 7], iteration=0, first_step=0)
        rows[layout] = round_.rows
    clock = timed.state.stop - 1
    steps = np.concatenate([np.arange(length + 1) for length in round_.outcomes.lengths])
    np.testing.assert_array_equal(rows[timed][:, clock], steps / np.float32(8))
    np.testing.assert_array_equal(np.delete(rows[timed], clock, axis=1), rows[plain])
    state = np.delete(rows[timed][:, timed.state], -1, axis=1)
    np.testing.assert_array_equal(state, rows[plain][:, plain.state])
    assert timed.place_of(clock) == "state"


def test_the_scale_of_random_play_standardises_its_rewards() -> None:
    environment = Timed(50)
    scale = random_reward_scale(environment, seed=1)
    paid = 10.0 * np.arange(1, 5)[:, None] + environment.seeds
    assert scale[:2] == pytest.approx((paid.mean(), paid.std()))
    assert scale.own_mean[0] == pytest.approx(paid.mean())
    assert scale.own_mean[1] == 0.0  # it leaves with the first step
    assert random_reward_scale(Timed(50), seed=1) == scale
    assert random_reward_scale(Timed(50), seed=2) != scale


@pytest.mark.parametrize(
    ("horizon", "told"), [(5, "5, and an episode ends with step 4"), (3, "3, and an episode goes")]
)
def test_a_horizon_that_is_not_the_length_of_every_episode_is_refused(
    horizon: int, told: str
) -> None:
    environment = Timed(3)
    environment.horizon = horizon
    with pytest.raises(EnvironmentFailed, match=f"^the environment's horizon is {told}"):
        random_reward_scale(environment, seed=1)


def test_a_collection_has_the_statistics_that_pymarl_s_runners_log() -> None:
    playing = collection(5)
    before = playing.collect(0).statistics["env_steps"]
    collected = playing.collect(1)
    lengths = [len(rows) - 1 for rows in episodes(collected)]
    assert collected.statistics == {
        "epsilon": 1.0 - 0.95 * before / 50,
        "return_mean": collected.returns.mean(),
        "return_std": collected.returns.std(),
        "ep_length_mean": np.mean(lengths),
        "env_steps": before + sum(lengths),
    }


def test_a_state_of_transitions_is_refused() -> None:
    with pytest.raises(CheckpointUnusable, match=r"collect\.mode and the collect\.lag"):
        collection(2).load({"rollout.episodes_finished": np.zeros(2)}, resume_at=0)
