"""The particle worlds replay recorded trajectories of the reference implementations bit for bit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from fullrank.environments.particle.cooperative_navigation import CooperativeNavigation
from fullrank.environments.particle.environment import ParticleEnvironment
from fullrank.environments.particle.goal import GoalEnvironment
from fullrank.environments.particle.keep_away import KeepAway
from fullrank.environments.particle.physical_deception import PhysicalDeception
from fullrank.environments.particle.predator_prey import PredatorPrey
from fullrank.environments.particle.rover_tower import Guidance, RoverTower
from fullrank.environments.particle.speaker_listener import SpeakerListener, Talk

from .recordings import HERE, AnyArray, Recording, load, recordings

TASKS = {
    "mpe_simple_spread": 3,
    "mpe_simple_tag": 2,
    "mpe_simple_adversary": 2,
    "mpe_simple_push": 1,
    "mpe_simple_speaker_listener": 1,
    "rover_tower": 1,
}
"""Beginning of a recording's name to the number of sizes recorded."""
RECORDINGS = recordings(*(f"{task}*" for task in TASKS))

Replay: TypeAlias = tuple[ParticleEnvironment, Recording]
Make: TypeAlias = Callable[[Recording, int, int], ParticleEnvironment]


def navigation(data: Recording, agents: int, copies: int) -> ParticleEnvironment:
    return CooperativeNavigation().make(agents=agents, copies=copies)


def predator_prey(data: Recording, agents: int, copies: int) -> ParticleEnvironment:
    prey = int((data["agent_adversary"] == 0).sum())
    return PredatorPrey(adversaries=prey).make(agents=agents, copies=copies)


def deception(data: Recording, agents: int, copies: int) -> ParticleEnvironment:
    adversaries = int(data["agent_adversary"].sum())
    return PhysicalDeception(adversaries=adversaries).make(agents=agents, copies=copies)


def keep_away(data: Recording, agents: int, copies: int) -> ParticleEnvironment:
    adversaries = int(data["agent_adversary"].sum())
    return KeepAway(adversaries=adversaries).make(agents=agents, copies=copies)


def speaker_listener(data: Recording, agents: int, copies: int) -> ParticleEnvironment:
    return SpeakerListener().make(agents=agents, copies=copies)


def rover_tower(data: Recording, agents: int, copies: int) -> ParticleEnvironment:
    return RoverTower().make(agents=agents, copies=copies)


MAKERS: Mapping[str, Make] = dict(
    zip(
        TASKS,
        (navigation, predator_prey, deception, keep_away, speaker_listener, rover_tower),
        strict=True,
    )
)


def environment_of(path: Path, data: Recording) -> ParticleEnvironment:
    """The task, in the recording's initial state."""
    make = next(make for task, make in MAKERS.items() if path.stem.startswith(task))
    copies, agents = data["init_pos"].shape[:2]
    environment = make(data, agents, copies)
    order = movers_first(data)
    moving = data["init_vel"][:, movers(data)]
    environment.world.place(
        range(copies),
        position=np.concatenate([data["init_pos"][:, order], data["landmark"]], axis=1).T.copy(),
        velocity=moving.T.copy(),
    )
    inject(environment, data)
    return environment


def inject(environment: ParticleEnvironment, data: Recording) -> None:
    """State of a scenario other than positions and velocities."""
    if isinstance(environment, GoalEnvironment):
        environment.goal[:] = data["goal"]
    if isinstance(environment, Talk):
        environment.message[:] = data["init_comm"][:, 0].T
    if isinstance(environment, Guidance):
        environment.tower_rover[:] = data["tower_rover"].T
        environment.tower_goal[:] = data["tower_goal"].T
        towers = data["init_comm"].shape[1] // 2
        environment.message[:] = data["init_comm"][:, towers:].transpose(1, 2, 0)


def movers(data: Recording) -> AnyArray:
    return np.flatnonzero(data["agent_movable"])


def movers_first(data: Recording) -> AnyArray:
    """Order of the agents' bodies in the world."""
    return np.concatenate([movers(data), np.flatnonzero(data["agent_movable"] == 0)])


def joint(by_agent: AnyArray, lengths: AnyArray) -> AnyArray:
    """Joint rows, shape (E, sum of lengths), from padded values per agent, shape (E, M, D)."""
    parts = [by_agent[:, agent, :length] for agent, length in enumerate(lengths)]
    return np.concatenate(parts, axis=1)


def action_lengths(data: Recording) -> AnyArray:
    everything = np.full(data["action"].shape[2], data["action"].shape[3])
    return data.get("action_len", everything)


def observation_lengths(data: Recording) -> AnyArray:
    everything = np.full(data["obs"].shape[1], data["obs"].shape[2])
    return data.get("obs_len", everything)


def test_every_task_is_recorded_in_every_size() -> None:
    kept = [path.stem for path in RECORDINGS if path.parent == HERE]
    for task, sizes in TASKS.items():
        assert sum(name.startswith(task) for name in kept) == sizes, task


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.stem)
def replay(request: pytest.FixtureRequest) -> Replay:
    data = load(request.param)
    return environment_of(request.param, data), data


def test_bodies_are_the_reference_s(replay: Replay) -> None:
    environment, data = replay
    bodies, order = environment.world.bodies, movers_first(data)
    sizes = [body.size for body in bodies]
    np.testing.assert_array_equal(sizes, [*data["agent_size"][order], *data["landmark_size"]])
    moving = bodies[: environment.world.movers]
    speeds = np.nan_to_num(data["agent_max_speed"], nan=np.inf)[movers(data)]
    np.testing.assert_array_equal([body.max_speed for body in moving], speeds)
    if "agent_collide" in data:
        collide = [*data["agent_collide"][order], *data["landmark_collide"]]
        np.testing.assert_array_equal([body.collides for body in bodies], np.array(collide, bool))


def test_trajectories_equal_the_reference_to_the_last_bit(replay: Replay) -> None:
    environment, data = replay
    world, order, moving = environment.world, movers_first(data), movers(data)
    actions, seen = action_lengths(data), observation_lengths(data)
    first = joint(data["init_obs"], seen).astype(np.float32)
    np.testing.assert_array_equal(environment.observation(), first)
    for t in range(data["pos"].shape[1]):
        step = environment.step(joint(data["action"][:, t], actions))
        agents = world.position[:, : len(order)].T
        np.testing.assert_array_equal(agents, data["pos"][:, t, order])
        np.testing.assert_array_equal(world.velocity.T, data["vel"][:, t, moving])
        expected = joint(data["obs"][data["obs_row"][:, t]], seen).astype(np.float32)
        np.testing.assert_array_equal(step.observation, expected)
        np.testing.assert_allclose(step.reward, data["reward"][:, t], rtol=0, atol=1e-12)
        assert not step.terminated.any()
