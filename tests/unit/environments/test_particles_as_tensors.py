"""Particle tasks on a device, as tensors, play as those of NumPy."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fullrank.common.types import Array, FloatArray
from fullrank.environments import make_environment
from fullrank.environments.capabilities import Uploadable
from fullrank.environments.particle.environment import DeviceParticles, ParticleEnvironment

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
COPIES, HORIZON = 40, 25
NEAR, SEEN_NEAR = 1e-12, 1e-6
"""Largest differences in a whole episode of states and rewards, and of observations."""
TASKS: dict[str, dict[str, Any]] = {
    "cooperative_navigation": {"agents": 8},
    "keep_away": {"agents": 8, "landmarks": 3},
    "physical_deception": {"agents": 6},
    "predator_prey": {"agents": 8, "landmarks": 3},
    "rover_tower": {"agents": 8},
    "speaker_listener": {},
}
COLLIDING = {"cooperative_navigation", "keep_away", "predator_prey"}
EXACT = {"physical_deception", "speaker_listener"}
"""Tasks whose states are sums and products alone, which every library rounds alike."""


def made(name: str) -> ParticleEnvironment:
    environment = make_environment(name, copies=COPIES, **TASKS[name])
    assert isinstance(environment, ParticleEnvironment)
    return environment


def on(device: str, environment: ParticleEnvironment) -> DeviceParticles:
    there = environment.on(partial(torch.tensor, device=device))
    assert isinstance(environment, Uploadable)
    return there


def driven(environment: ParticleEnvironment) -> list[FloatArray]:
    """Actions that are kept for five steps each, so that bodies gain speed and meet."""
    generator = np.random.default_rng(0)
    sizes = [agent.action.size for agent in environment.agents]
    chosen = [
        np.concatenate([np.eye(n)[generator.integers(n, size=COPIES)] for n in sizes], axis=1)
        for _ in range(HORIZON // 5)
    ]
    return [each.astype(np.float32) for each in chosen for _ in range(5)]


def distances(environment: ParticleEnvironment) -> Array:
    """Distances of different agents, shape (pairs, E)."""
    m = environment.world.movers
    return environment.world.distance[*np.triu_indices(m, k=1)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TASKS)
def test_whole_episodes_of_tensors_are_those_of_arrays(name: str, device: str) -> None:
    here, nearest = made(name), np.inf
    there = on(device, made(name))
    copies = range(COPIES)
    np.testing.assert_array_equal(there.reset(copies, copies), here.reset(copies, copies))
    for action in driven(here):
        step = here.step(action)
        there.advance(torch.from_numpy(action.T.copy()).to(device))
        seen, reward = there.observation.cpu().numpy(), there.reward.cpu().numpy()
        np.testing.assert_allclose(reward, step.reward.T, rtol=0, atol=NEAR)
        np.testing.assert_allclose(seen, step.observation.T, rtol=0, atol=SEEN_NEAR)
        states = [*zip(there.state(), here.started(), strict=True)]
        for tensor, array in states:
            np.testing.assert_allclose(tensor.cpu().numpy(), array, rtol=0, atol=NEAR)
        if name in EXACT:
            assert all(np.array_equal(tensor.cpu().numpy(), array) for tensor, array in states)
            assert np.array_equal(seen, step.observation.T)
        nearest = min(nearest, float(distances(here).min(initial=np.inf)))
    assert name not in COLLIDING or nearest < here.world.bodies[0].size


@pytest.mark.parametrize("name", TASKS)
def test_episodes_begin_in_some_copies_on_a_device_and_go_on_in_others(name: str) -> None:
    here, there = made(name), on("cpu", made(name))
    everywhere, some = range(COPIES), range(0, COPIES, 3)
    for each in (here, there):
        each.reset(everywhere, everywhere)
    for number, action in enumerate(driven(here)):
        one, other = here.step(action), there.step(action)
        assert other.observation.flags.c_contiguous
        np.testing.assert_allclose(other.observation, one.observation, rtol=0, atol=SEEN_NEAR)
        np.testing.assert_allclose(other.reward, one.reward, rtol=0, atol=NEAR)
        np.testing.assert_array_equal(other.ended, one.ended)
        if number == 10:
            seeds = range(100, 100 + len(some))
            begun = [each.reset(seeds, some) for each in (here, there)]
            np.testing.assert_allclose(begun[1], begun[0], rtol=0, atol=SEEN_NEAR)


def test_fast_bodies_are_slowed_to_their_limits_on_a_device_too() -> None:
    here, there = made("predator_prey"), on("cpu", made("predator_prey"))
    for each in (here, there):
        each.reset(range(COPIES), range(COPIES))
    for action in driven(here):
        here.step(action)
        there.step(action)
    limits = np.array([body.max_speed for body in here.world.bodies[: here.world.movers]])
    speed = np.linalg.norm(here.world.velocity, axis=0)
    assert np.isclose(speed, limits[:, None]).any(axis=1).all()
    _, velocity = there.state()
    np.testing.assert_allclose(velocity.numpy(), here.world.velocity, atol=NEAR)
