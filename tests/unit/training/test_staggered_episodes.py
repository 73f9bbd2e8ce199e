"""Iterations shorter than an episode: starts are spread, so that every iteration has returns."""

import numpy as np
import pytest

from fullrank.config import RunConfig, load
from fullrank.training.rollouts import Collected
from fullrank.wiring import Training, training_of

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
