"""Collection keeps every transition in order, from the warm-up on, and resumes where it stood."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.training.worlds import LAYOUT, SEED, Countdown, Endless, Ones, length, rollout

from fullrank.algorithms import Player
from fullrank.algorithms.roles import Memory
from fullrank.common.errors import CheckpointUnusable, EnvironmentFailed
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.config import RunConfig, load
from fullrank.environments import Step, make_environment
from fullrank.replay.episodes import episodes_in
from fullrank.replay.layout import Layout
from fullrank.training import episodes
from fullrank.training.collection import REPORTS
from fullrank.training.episodes import Episodes
from fullrank.training.rollouts import Collected, Rollout
from fullrank.wiring.training import Training, training_of


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
    resumed.load(interrupted.mark()())
    for iteration in (1, 2):
        one, other = (each.collect(after, iteration=iteration) for each in (interrupted, resumed))
        assert one.rows.tobytes() == other.rows.tobytes()
        assert one.returns.tobytes() == other.returns.tobytes()


def test_only_the_actions_of_running_episodes_are_kept() -> None:
    going = rollout(Countdown(2))
    going.collect(100, iteration=0)
    assert len(going.mark()()["actions"]) == going.mark()()["episode_steps"].max() < 4


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
        resumed.load(interrupted.mark()())


class Still:
    def memory(self, copies: int) -> Memory:
        return ()

    def act(self, observation: FloatArray, memory: Memory, **_: Any) -> tuple[FloatArray, Memory]:
        return np.zeros((len(observation), 15), dtype=np.float32), memory


def test_resuming_between_episodes_equals_going_on() -> None:
    def cooperative() -> Rollout:
        environment = make_environment("cooperative_navigation", copies=2, horizon=5)
        layout = Layout(observation_sizes=(18,) * 3, action_sizes=(5,) * 3)
        return Rollout(environment, cast(Player, Still()), layout, seed=SEED)

    going = cooperative()
    going.collect(10, iteration=0)
    resumed = cooperative()
    resumed.load(going.mark()())
    one, other = going.collect(10, iteration=1), resumed.collect(10, iteration=1)
    np.testing.assert_array_equal(one.rows, other.rows)
    assert len(one.returns) == 4
    np.testing.assert_array_equal(one.returns, other.returns)


def test_a_state_of_other_copies_is_refused() -> None:
    with pytest.raises(CheckpointUnusable, match="3 copies"):
        rollout(Countdown(3)).load(rollout(Countdown(2)).mark()())
    with pytest.raises(CheckpointUnusable, match="3 copies"):
        rollout(Countdown(3)).load({})


HORIZON = 10
BASE = (
    "environment.copies=20",
    f"environment.horizon={HORIZON}",
    "collect.warmup=32",
    "collect.warmup_copies=8",
    "algorithm.batch_size=16",
    "algorithm.hidden=16",
)


def config(*overrides: str) -> RunConfig:
    return load(environ={}, overrides=[*BASE, *overrides]).check().config


def collected(training: Training, iterations: range) -> list[Collected]:
    return [training.collector.collect(iteration) for iteration in iterations]


@pytest.mark.parametrize("steps", [1, 2, 5, 7])
def test_equally_many_episodes_end_in_every_iteration_from_the_first(steps: int) -> None:
    training = training_of(config(f"collect.steps={steps}"))
    ended = [len(each.returns) for each in collected(training, range(30))]
    assert ended == [20 * steps // HORIZON] * 30


def test_every_return_is_of_a_whole_episode() -> None:
    training = training_of(config("collect.steps=1"))
    parts = collected(training, range(3 * HORIZON))
    reward = training.collector.layout.reward
    paid = np.concatenate([each.rows[None, :, reward] for each in parts]).sum(axis=2)
    copy = 7  # starts in step 3, so that its second episode ends in step 16
    assert parts[6].returns.size == parts[16].returns.size == 2
    second = paid[7:17, copy].sum()
    assert np.isclose(parts[16].returns, second, rtol=1e-5).any()


def test_iterations_of_whole_episodes_begin_with_their_first_step() -> None:
    training = training_of(config(f"collect.steps={HORIZON}"))
    first = training.collector.collect(0)
    assert first.returns.size == 20
    assert training.state(resume_at=1)["rollout.episode_steps"].tolist() == [0] * 20


@pytest.mark.parametrize("before", [0, 1, 4, 13])
def test_a_resumed_run_goes_on_in_the_midst_of_staggered_episodes(before: int) -> None:
    settings = config("collect.steps=1")
    whole = collected(training_of(settings), range(20))
    cut = training_of(settings)
    collected(cut, range(before))
    resumed = training_of(settings)
    resumed.load(cut.state(resume_at=before), resume_at=before)
    for expected, actual in zip(whole[before:], collected(resumed, range(before, 20)), strict=True):
        np.testing.assert_array_equal(expected.rows, actual.rows)
        np.testing.assert_array_equal(expected.returns, actual.returns)


class Failed(Exception):
    """An environment's own error."""


@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("fails", [False, True])
def test_a_state_is_that_of_its_collection_even_if_the_next_one_was_begun(
    before: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("collect.steps=3")
    whole = collected(training_of(settings), range(8))
    cut = training_of(settings)
    collected(cut, range(before + 1))
    if fails:
        advance, left = Episodes.advance_packed, [2]

        def failing(self: Episodes, *arguments: Any, **named: Any) -> Step:
            left[0] -= 1
            if not left[0]:
                raise Failed
            return advance(self, *arguments, **named)

        with monkeypatch.context() as patched:
            patched.setattr(Episodes, "advance_packed", failing)
            with pytest.raises(Failed):
                cut.collector.collect(before + 1)
    else:
        cut.collector.collect(before + 1)
    for at in (before, before + 1):
        resumed = training_of(settings)
        resumed.load(cut.state(resume_at=at), resume_at=at)
        for expected, actual in zip(whole[at:], collected(resumed, range(at, 8)), strict=True):
            np.testing.assert_array_equal(expected.rows, actual.rows)
            np.testing.assert_array_equal(expected.returns, actual.returns)


SMALL: dict[str, Any] = {
    "algorithm.hidden": 8,
    "algorithm.batch_size": 8,
    "collect.warmup": 200,
    "collect.warmup_copies": 2,
    "environment.copies": 1,
    "environment.agents": 2,
}


@pytest.mark.parametrize("algorithm", ["maddpg", "vdn"])
def test_it_is_told_in_parts_until_it_is_complete(algorithm: str) -> None:
    def warm_up(*report: Any) -> np.ndarray[Any, Any]:
        training = training_of(load(options=SMALL | {"algorithm.name": algorithm}).check().config)
        rows = training.collector.warm_up(*report)
        training.collector.close()
        return rows

    told: list[str] = []
    assert warm_up(told.append).tobytes() == warm_up().tobytes()
    assert 2 <= len(told) <= REPORTS
    assert told[-1] == "warm-up: 200 of 200 transitions"
    assert len({*told}) == len(told)


def test_whole_episodes_are_played_again_and_again_until_there_are_enough_rows() -> None:
    training = training_of(load(options=SMALL | {"algorithm.name": "vdn"}).check().config)
    rows, layout = training.collector.warm_up(), training.problem.episodes
    training.collector.close()
    assert layout is not None
    played = [rows[place].tobytes() for place in episodes_in(rows, layout.length)]
    assert len(rows) >= 200 > len(rows) * (len(played) - 2) / len(played)
    assert len({*played}) == len(played) > 2


def test_an_episode_that_does_not_end_is_cut_off_as_by_a_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(episodes, "LONGEST", 7)
    world = Endless(2)
    interrupted, resumed = rollout(world, Ones()), rollout(Endless(2), Ones())
    collected = interrupted.collect(17, iteration=0)
    steps = collected.rows[::2, LAYOUT.observation][:, 3]
    assert steps.tolist() == [*range(7), *range(7), *range(3)]
    assert collected.rows[::2, LAYOUT.next_observation][6, 3] == 7
    assert not collected.rows[:, LAYOUT.terminated][:, 1].any()
    assert collected.returns.size == 0
    seeds = [derive(SEED, "episode", 1, number) for number in range(3)]
    assert [seed for copy, seed in world.seeds if copy == 1] == seeds
    state = interrupted.mark()()
    assert len(state["actions"]) == 3
    resumed.load(state)
    one, other = (each.collect(9, iteration=1) for each in (interrupted, resumed))
    assert one.rows.tobytes() == other.rows.tobytes()
