"""The particle worlds replay recorded trajectories of the reference implementation bit for bit."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.environments.particle.cooperative_navigation import CooperativeNavigation
from fullrank.environments.particle.world import Bodies, World

HERE = Path(__file__).parents[2] / "golden"
FOLDERS = [HERE, *(Path(folder) for folder in [os.environ.get("FULLRANK_GOLDEN")] if folder)]
SPREAD = sorted(path for folder in FOLDERS for path in folder.glob("mpe_simple_spread_*.npz"))
ALL = sorted(path for folder in FOLDERS for path in folder.glob("mpe_simple_*.npz"))

Recording = Mapping[str, np.ndarray[Any, Any]]


def recording(path: Path) -> Recording:
    return dict(np.load(path, allow_pickle=False))


def start(world: World, data: Recording) -> None:
    world.place(
        range(len(data["init_pos"])),
        position=np.concatenate([data["init_pos"], data["landmark"]], axis=1).T.copy(),
        velocity=data["init_vel"].T.copy(),
    )


def bodies(data: Recording) -> Bodies:
    return Bodies(
        size=np.concatenate([data["agent_size"], data["landmark_size"]]),
        collides=np.concatenate([data["agent_collide"], data["landmark_collide"]]).astype(bool),
        acceleration=np.nan_to_num(data["agent_accel"], nan=5.0),
        max_speed=np.nan_to_num(data["agent_max_speed"], nan=np.inf),
        movable=data["agent_movable"].astype(bool),
    )


def test_recordings_are_there() -> None:
    assert len(SPREAD) >= 3
    assert len(ALL) >= 7


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_physics_equals_the_reference_to_the_last_bit(path: Path) -> None:
    data = recording(path)
    copies, steps, agents, _ = data["pos"].shape
    world = World(bodies(data), copies=copies)
    start(world, data)
    for t in range(steps):
        world.step(data["action"][:, t].transpose(1, 2, 0))
        np.testing.assert_array_equal(world.position[:, :agents].T, data["pos"][:, t])
        np.testing.assert_array_equal(world.velocity.T, data["vel"][:, t])


@pytest.mark.parametrize("path", SPREAD, ids=lambda path: path.stem)
def test_cooperative_navigation_equals_the_reference(path: Path) -> None:
    data = recording(path)
    copies, steps, agents, _ = data["pos"].shape
    environment = CooperativeNavigation().make(agents=agents, copies=copies)
    start(environment.world, data)
    first = data["init_obs"].reshape(copies, -1).astype(np.float32)
    np.testing.assert_array_equal(environment.observation(), first)
    for t in range(steps):
        step = environment.step(data["action"][:, t].reshape(copies, -1))
        expected = data["obs"][data["obs_row"][:, t]].reshape(copies, -1).astype(np.float32)
        np.testing.assert_array_equal(step.observation, expected)
        np.testing.assert_allclose(step.reward, data["reward"][:, t], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(environment.world.velocity.T, data["vel"][:, -1])
