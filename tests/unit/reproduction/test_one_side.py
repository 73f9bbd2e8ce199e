"""A side of a contest as an environment of its own."""

from contextlib import closing

import numpy as np
import pytest
import torch

from fullrank.common.types import FloatArray
from fullrank.environments import Environment, make_environment
from fullrank_reproduction.baselines.epc.entity_observations import ObservationParser
from fullrank_reproduction.entities import entities_of
from fullrank_reproduction.one_side import OneSide

COPIES, ADVERSARIES, GOOD = 3, 2, 4
STEPS = 12


def contest(task: str) -> Environment:
    return make_environment(
        task, agents=6, copies=COPIES, adversaries=ADVERSARIES, distance=100.0, horizon=5
    )


def drawn(agents: int, number: int) -> FloatArray:
    """Actions of agents in a step, one of five each."""
    choices = np.random.default_rng([agents, number]).integers(5, size=(COPIES, agents))
    return np.eye(5, dtype=np.float32)[choices].reshape(COPIES, -1)


@pytest.mark.parametrize("task", ["grassland", "adversarial_battle"])
def test_a_side_plays_what_the_contest_plays_in_which_the_others_do_the_same(task: str) -> None:
    whole = contest(task)
    width = whole.agents[0].observation_size
    seen: list[FloatArray] = []

    def others(observation: FloatArray) -> FloatArray:
        seen.append(observation.copy())
        return drawn(ADVERSARIES, len(seen) - 1)

    inner = contest(task)
    side = OneSide(inner, entities_of(inner, task), others)
    assert side.agents == whole.agents[ADVERSARIES:]
    assert side.copies == COPIES
    ended = np.ones(COPIES, dtype=bool)
    with closing(whole), closing(side):
        for number in range(STEPS):
            if ended.any():
                copies = np.flatnonzero(ended)
                seeds = (number + copies).tolist()
                observation = whole.reset(seeds, copies.tolist())
                mine = side.reset(seeds, copies.tolist())
                assert np.array_equal(mine, observation[:, ADVERSARIES * width :])
            action = drawn(GOOD, number)
            known = observation[:, : ADVERSARIES * width]
            step = whole.step(np.concatenate([drawn(ADVERSARIES, number), action], axis=1))
            own = side.step(action)
            assert np.array_equal(seen[number], known)
            assert np.array_equal(own.observation, step.observation[:, ADVERSARIES * width :])
            for field in ("reward", "terminated", "alive"):
                assert np.array_equal(getattr(own, field), getattr(step, field)[:, ADVERSARIES:])
            assert np.array_equal(own.ended, step.ended)
            observation, ended = step.observation, step.ended
    assert len(seen) == STEPS


@pytest.mark.parametrize("task", ["grassland", "adversarial_battle"])
def test_a_side_sees_whom_its_agents_see_in_the_contest(task: str) -> None:
    whole = contest(task)
    side = OneSide(whole, entities_of(whole, task), lambda observation: observation)
    mine = torch.from_numpy(side.reset([1, 2, 3], [0, 1, 2]))
    joint = torch.from_numpy(whole.reset([1, 2, 3], [0, 1, 2]))
    own = ObservationParser(side.entities(), agents=GOOD).parse(mine.contiguous())
    known = ObservationParser(entities_of(whole, task), agents=6).parse(joint)
    assert torch.equal(own.own, known.own[:, ADVERSARIES:])
    for some, all_ in zip(own.kinds, known.kinds, strict=True):
        assert some.present.any()
        assert torch.equal(some.present, all_.present[:, ADVERSARIES:])
        assert torch.equal(some.features, all_.features[:, ADVERSARIES:])
