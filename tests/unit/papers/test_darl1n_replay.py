"""The paper's replay of DARL1N: what a unit learns from, and who may learn from it."""

from dataclasses import replace

import numpy as np
import pytest

from fullrank.algorithms import Algorithm
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments.neighbourhood import Samples
from fullrank.wiring.plugins import algorithm_config_of
from fullrank.wiring.training import training_of
from fullrank_darl1n.published import FOOD, ISING, REPLAY, SCALES, TeamSpec
from fullrank_darl1n.replay import ReplayedDARL1N, ReplaySampler
from fullrank_darl1n.runs import learners, trial

NEW, FIRST, SIZE = 3, 2, 400
NOTHING = np.zeros((0, 0), np.float32)


def numbered(agent: int, key: tuple[int, ...]) -> Samples:
    """Three transitions whose reward says when they were collected."""
    rows = np.full((NEW, 2), float(agent), np.float32)
    return Samples(rows, np.full(NEW, float(key[0]) + (0.5 if len(key) > 1 else 0.0)), rows)


def sampler() -> ReplaySampler:
    return ReplaySampler(numbered, size=SIZE, first=FIRST, seed=0)


def test_an_update_draws_from_everything_that_was_collected() -> None:
    draw = sampler()
    rewards = [draw(4, (iteration,)).reward for iteration in range(3)]
    assert [sorted(set(drawn.tolist())) for drawn in rewards] == [
        [0.0, 0.5],
        [0.0, 0.5, 1.0],
        [0.0, 0.5, 1.0, 2.0],
    ]
    shares = [np.mean(rewards[2] == value) for value in (0.0, 0.5, 1.0, 2.0)]
    np.testing.assert_allclose(shares, [0.2, 0.4, 0.2, 0.2], atol=0.07)


def test_holders_agree_and_an_iteration_asked_for_again_has_the_same_draws() -> None:
    first, second = sampler(), sampler()
    for iteration in range(3):
        again = [draw(1, (iteration,)) for draw in (first, second, first)]
        for each in again[1:]:
            assert np.array_equal(again[0].reward, each.reward)
            assert np.array_equal(again[0].seen_next, each.seen_next)
    other = second(0, (0,))
    assert set(other.seen.ravel().tolist()) == {0.0}  # its own replay


def test_a_holder_that_missed_an_iteration_is_refused() -> None:
    draw = sampler()
    draw(1, (0,))
    with pytest.raises(ConfigError, match="holds iterations up to 0 and is asked for 2"):
        draw(1, (2,))
    with pytest.raises(ConfigError, match="up to -1 and is asked for 7"):
        draw(2, (7,))


def computed(algorithm: Algorithm, iteration: int) -> list[FloatArray]:
    found = algorithm.gradients.compute(NOTHING, [0, 3], iteration=iteration)
    return [update.copy() for _, update in found]


def test_updates_are_those_of_the_losses_on_the_drawn_transitions() -> None:
    config = trial(SCALES["smoke"], TeamSpec(ISING, ISING.sizes[0]), REPLAY, 0).config()
    training = training_of(config)
    collector, spec = training.collector, training.environment
    paper = algorithm_config_of(config)
    assert isinstance(paper, ReplayedDARL1N)
    reference = paper.readable(spec, seed=config.seed, device="cpu")
    for iteration in range(2):
        for ours, stated in zip(
            computed(training.algorithm, iteration), computed(reference, iteration), strict=True
        ):
            assert np.linalg.norm(ours - stated) < 1e-4 * np.linalg.norm(stated)
    with pytest.raises(ConfigError, match="trains in one process"):
        computed(training.algorithm, 3)
    collector.close()


def test_teams_with_the_papers_replay_are_trained_without_it_too() -> None:
    scale = replace(SCALES["standard"], replayed={"food_collection": 1})
    runs = [each.name for each in learners(scale, FOOD)]
    assert f"train-food_collection-3-{REPLAY}-seed0" in runs
    assert "train-food_collection-3-darl1n-seed0" in runs
    assert not any(REPLAY in name for name in runs if "-6-" in name)
