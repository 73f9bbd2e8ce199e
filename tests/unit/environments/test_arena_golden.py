"""The arenas replay recorded trajectories of the reference implementations bit for bit."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fullrank.environments.arena.adversarial_battle import AdversarialBattle
from fullrank.environments.arena.config import ArenaConfig
from fullrank.environments.arena.crowd import FOOD
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.food_collection import FoodCollection
from fullrank.environments.arena.grassland import Grassland

from .recordings import HERE, AnyArray, Recording, load, recordings

TASKS: Mapping[str, type[ArenaConfig]] = {
    "food_collection": FoodCollection,
    "grassland": Grassland,
    "adversarial_battle": AdversarialBattle,
}
EPISODES = recordings(
    *(f"darl1n_{task}_m{size}" for task in TASKS for size in ("[0-9]", "[0-9][0-9]"))
)


def arena_of(path: Path, data: Recording) -> Arena:
    """The task with its defaults, in the recording's initial state."""
    copies, agents = data["init_pos"].shape[:2]
    config = next(cls for task, cls in TASKS.items() if f"_{task}_" in path.stem)
    arena = Arena(config(horizon=data["pos"].shape[1]), agents=agents, copies=copies)
    crowd = arena.crowd
    crowd.position = data["init_pos"].transpose(2, 0, 1).copy()
    crowd.velocity = data["init_vel"].transpose(2, 0, 1).copy()
    crowd.food = data["init_landmark"].transpose(2, 0, 1).copy()
    crowd.live = data["init_live"].astype(bool)
    ends = np.cumsum(data["draw_count"].sum(axis=1))[:-1]
    arena.respawns = [iter(draws) for draws in np.split(data["draw_pos"], ends)]
    return arena


def compare_observations(observed: AnyArray, data: Recording, step: int) -> None:
    """Compare the step's recorded observations with joint rows of shape (E, M D)."""
    row = data["obs_row"][:, step]
    expected = data["obs"][row[row >= 0]].astype(np.float32)
    np.testing.assert_array_equal(observed[row >= 0], expected.reshape(-1, observed.shape[1]))


def test_every_recorded_size_is_replayed() -> None:
    kept = [path.stem for path in EPISODES if path.parent == HERE]
    counts = {task: sum(f"_{task}_" in name for name in kept) for task in TASKS}
    assert counts == {"food_collection": 4, "grassland": 3, "adversarial_battle": 3}


@pytest.mark.parametrize("path", EPISODES, ids=lambda path: path.stem)
def test_defaults_are_the_reference_s(path: Path) -> None:
    data = load(path)
    layout = arena_of(path, data).layout
    assert layout.half_width == data["half_width"]
    assert layout.food == data["init_landmark"].shape[1]
    assert layout.observation_size == data["obs"].shape[2]
    np.testing.assert_array_equal(layout.traits.size[0], data["agent_size"])
    np.testing.assert_array_equal(layout.traits.max_speed[0], data["agent_max_speed"])
    np.testing.assert_array_equal(
        layout.traits.acceleration[0], np.nan_to_num(data["agent_accel"], nan=5.0)
    )
    adversary = data["agent_adversary"].astype(bool)
    np.testing.assert_array_equal(layout.traits.adversary[0], adversary)
    sight = np.where(adversary, data["sight_adversary"], data["sight_good"])
    np.testing.assert_array_equal(layout.traits.sight[0], sight)
    assert {FOOD.size} == {*data["landmark_size"]}


@pytest.mark.parametrize("path", EPISODES, ids=lambda path: path.stem)
def test_trajectories_equal_the_reference_to_the_last_bit(path: Path) -> None:
    data = load(path)
    arena = arena_of(path, data)
    crowd = arena.crowd
    copies, steps = data["pos"].shape[:2]
    first = data["init_obs"].astype(np.float32).reshape(copies, -1)
    np.testing.assert_array_equal(arena.observation(), first)
    for t in range(steps):
        step = arena.step(data["action"][:, t].reshape(copies, -1))
        np.testing.assert_array_equal(crowd.position, data["pos"][:, t].transpose(2, 0, 1))
        np.testing.assert_array_equal(crowd.velocity, data["vel"][:, t].transpose(2, 0, 1))
        np.testing.assert_array_equal(crowd.food, data["landmark"][:, t].transpose(2, 0, 1))
        np.testing.assert_array_equal(crowd.live, data["live"][:, t].astype(bool))
        compare_observations(step.observation, data, t)
        np.testing.assert_allclose(step.reward, data["reward"][:, t], rtol=0, atol=1e-12)
    assert all(next(draws, None) is None for draws in arena.respawns)
