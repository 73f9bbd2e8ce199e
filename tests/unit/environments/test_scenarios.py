"""Particle scenarios: any size plays, and recorded trajectories are equal to the last bit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment
from fullrank.environments.particle.cooperative_navigation import CooperativeNavigation
from fullrank.environments.particle.environment import GoalEnvironment, ParticleEnvironment
from fullrank.environments.particle.keep_away import KeepAway
from fullrank.environments.particle.physical_deception import PhysicalDeception
from fullrank.environments.particle.predator_prey import PredatorPrey
from fullrank.environments.particle.rover_tower import Guidance, RoverTower
from fullrank.environments.particle.speaker_listener import SpeakerListener, Talk

from .recordings import HERE, AnyArray, Recording, load, recordings

COMPETITIVE = ("predator_prey", "physical_deception", "keep_away")


@given(
    name=st.sampled_from(COMPETITIVE),
    agents=st.integers(2, 9),
    landmarks=st.integers(1, 6),
    data=st.data(),
)
def test_any_number_of_agents_adversaries_and_landmarks_plays(
    name: str, agents: int, landmarks: int, data: st.DataObject
) -> None:
    adversaries = data.draw(st.integers(1, agents - 1))
    environment = make_environment(
        name, agents=agents, copies=2, adversaries=adversaries, landmarks=landmarks
    )
    counted = "prey" if name == "predator_prey" else "adversary"
    assert sum(agent.side == counted for agent in environment.agents) == adversaries
    environment.reset([1, 2], [0, 1])
    action = np.tile(np.eye(5, dtype=np.float32)[1], (2, agents))
    step = environment.step(action)
    size = sum(agent.observation_size for agent in environment.agents)
    assert step.observation.shape == (2, size)
    assert np.isfinite(step.observation).all()
    assert np.isfinite(step.reward).all()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("cooperative_navigation", {"agents": 1}),
        ("cooperative_navigation", {"agents": 5}),
        ("keep_away", {"agents": 5, "landmarks": 2}),
        ("keep_away", {"agents": 5, "landmarks": 4}),
        ("physical_deception", {"agents": 4}),
        ("predator_prey", {"agents": 4}),
        ("rover_tower", {"agents": 6}),
        ("speaker_listener", {}),
    ],
)
def test_every_entry_that_is_not_declared_always_zero_takes_other_values(
    name: str, params: dict[str, Any]
) -> None:
    environment = make_environment(name, copies=20, **params)
    seen = environment.reset(range(20), range(20)).any(axis=0)
    generator = np.random.default_rng(0)
    actions = sum(agent.action.size for agent in environment.agents)
    for _ in range(10):
        seen |= environment.step(generator.random((20, actions), np.float32)).observation.any(0)
    own = np.split(seen, np.cumsum([agent.observation_size for agent in environment.agents])[:-1])
    for agent, taken in zip(environment.agents, own, strict=True):
        assert agent.live == tuple(np.flatnonzero(taken))


IMPOSSIBLE = [
    ("predator_prey", 1, {}, "1 <= K < M"),
    ("predator_prey", 4, {"adversaries": 4}, "1 <= K < M; M = 4, K = 4"),
    ("predator_prey", 4, {"adversaries": -1}, "1 <= K < M"),
    ("predator_prey", 4, {"landmarks": -1}, "at least 0, are needed; L = -1"),
    ("physical_deception", 3, {"adversaries": 3}, "1 <= K < M; M = 3, K = 3"),
    ("physical_deception", 3, {"landmarks": -2}, "at least 1, are needed; L = -2"),
    ("keep_away", 2, {"adversaries": 2}, "1 <= K < M; M = 2, K = 2"),
    ("keep_away", 2, {"landmarks": 0}, "at least 1, are needed; L = 0"),
    ("speaker_listener", 3, {}, "M = 2: 3"),
    ("rover_tower", 7, {}, "M must be even, at least 2: 7"),
    ("rover_tower", 8, {"landmarks": 0}, "at least 1, are needed; L = 0"),
    ("rover_tower", 8, {"horizon": 0}, "horizon must be from 1 to 4611686018427387904: 0"),
]


@pytest.mark.parametrize(("name", "agents", "params", "rule"), IMPOSSIBLE)
def test_an_impossible_size_names_its_rule(
    name: str, agents: int, params: dict[str, int], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        make_environment(name, agents=agents, copies=1, **params)


def test_adversaries_never_see_which_landmark_is_the_goal() -> None:
    for task in (PhysicalDeception(landmarks=3), KeepAway(landmarks=3)):
        environment = task.make(agents=4, copies=3)
        stands = np.broadcast_to(np.linspace(-1, 1, 14).reshape(2, 7, 1), (2, 7, 3))
        environment.world.place(range(3), position=stands, velocity=np.zeros((2, 4, 3)))
        environment.goal[:] = [0, 1, 2]
        seen = environment.observation()
        ignorant = sum(a.observation_size for a in environment.agents if a.side == "adversary")
        assert (seen[:, :ignorant] == seen[:1, :ignorant]).all()
        assert (seen[:, ignorant:] != seen[:1, ignorant:]).any(axis=1).tolist()[1:] == [True, True]


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
