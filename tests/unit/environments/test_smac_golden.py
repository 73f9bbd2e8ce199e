"""SMAC-lite computes the features, rewards and ends that SMAC's Python layer recorded."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fullrank.environments.smac_lite.battle import (
    LARGEST_RETURN,
    VICTORY,
    damage_reward,
    judge,
)
from fullrank.environments.smac_lite.features import Features, SideConstants, Standing
from fullrank.environments.smac_lite.maps import MAPS, Map
from fullrank.environments.smac_lite.units import UNITS

from .recordings import HERE, AnyArray, Recording, load, recordings

RECORDINGS = recordings("smac_*")
GAME_IDS = {
    4: "colossus",
    48: "marine",
    51: "marauder",
    54: "medivac",
    73: "zealot",
    74: "stalker",
    98: "spine_crawler",
    105: "zergling",
    107: "hydralisk",
}
"""Unit types by their number in the game."""


class Replay(NamedTuple):
    """One recording, whose frames are copies."""

    task: Map
    features: Features
    agents: Standing
    enemies: Standing
    cooldown: AnyArray
    """Cooldown, or energy, of each agent, shape (n, frames)."""
    episode: AnyArray
    """Episode of each frame."""
    frame: AnyArray
    """Index of each frame in its episode, 0 after the reset."""


def replay(path: Path) -> tuple[Recording, Replay]:
    data, task = load(path), MAPS[path.stem.removeprefix("smac_")]
    episode, frame = np.nonzero(np.arange(9) <= data["steps"][:, None])
    agents = task.allies.types
    enemies = [UNITS[GAME_IDS[number]] for number in data["enemy_type"].tolist()]
    healers = np.array([unit.heals for unit in agents])
    features = Features(
        side(data, "ally", SideConstants.of(agents, task.kinds)),
        side(data, "enemy", SideConstants.of(enemies, task.enemy_kinds)),
        cooldown_scale=np.array([[unit.cooldown_scale] for unit in agents]),
        healers=healers,
        walkable=data["pathing"].astype(bool),
        area=tuple(data["play_area"].tolist()),
    )
    table = data["ally_seen"][episode, frame]
    ours, theirs = units(table), units(data["enemy_seen"][episode, frame])
    cooldown = np.where(healers, table[:, :, 5], table[:, :, 4]).T
    return data, Replay(task, features, ours, theirs, cooldown, episode, frame)


def side(data: Recording, name: str, own: SideConstants) -> SideConstants:
    """The side with the largest health that was recorded."""
    health, shield = data[f"{name}_health_max"][:, None], data[f"{name}_shield_max"][:, None]
    assert shield.any() == (own.shield is not None)
    return SideConstants(
        health=health, shield=None if own.shield is None else shield, bits=own.bits
    )


def units(table: AnyArray) -> Standing:
    """Units from rows of x, y, health, shield, cooldown, energy, shape (frames, k, 6)."""
    columns = np.moveaxis(table, 0, -1)
    return Standing(
        position=columns[:, :2].swapaxes(0, 1),
        health=columns[:, 2],
        shield=columns[:, 3],
    )


def test_every_map_is_replayed() -> None:
    assert {path.stem.removeprefix("smac_") for path in RECORDINGS if path.parent == HERE} == set(
        MAPS
    )


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_observations_and_available_actions_equal_the_reference(path: Path) -> None:
    data, run = replay(path)
    observation, available = run.features.look(run.agents, run.enemies)
    expected = data["obs"][run.episode, run.frame]
    np.testing.assert_array_equal(observation, expected.reshape(len(expected), -1))
    permitted = data["avail"][run.episode, run.frame].astype(bool)
    np.testing.assert_array_equal(available, permitted.reshape(len(permitted), -1))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_states_equal_the_reference(path: Path) -> None:
    data, run = replay(path)
    nothing = np.full_like(data["action"][:, :1], -1)
    action = np.concatenate([nothing, data["action"]], axis=1)[run.episode, run.frame]
    last = action.T[:, None] == np.arange(run.features.actions)[:, None]
    state = run.features.state(run.agents, run.enemies, cooldown=run.cooldown, last=last)
    np.testing.assert_array_equal(state, data["state"][run.episode, run.frame])


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_rewards_and_ends_equal_the_reference(path: Path) -> None:
    data, run = replay(path)
    later = np.flatnonzero(run.frame)
    step = run.episode[later], run.frame[later] - 1
    won, over = judge(
        run.agents.alive[:, later],
        run.enemies.alive[:, later],
        medics=np.array([unit.heals for unit in run.task.allies.types]),
        enemy_medics=data["enemy_type"] == 54,
    )
    left = (run.enemies.health + run.enemies.shield) * run.enemies.alive
    reward = damage_reward(left[:, later - 1], left[:, later]) + VICTORY * won
    scaled = reward / (run.task.largest_return / LARGEST_RETURN)
    np.testing.assert_array_equal(won, data["battle_won"][step])
    np.testing.assert_array_equal(over, data["terminated"][step])
    np.testing.assert_allclose(scaled, data["reward"][step], rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_armies_and_limits_are_those_of_the_reference(path: Path) -> None:
    data, run = replay(path)
    assert run.task.limit == data["episode_limit"]
    assert run.task.largest_return == data["max_reward"]
    own = sorted(unit.name for unit in run.task.enemies.types)
    assert own == sorted(GAME_IDS[number] for number in data["enemy_type"].tolist())
    kinds = data["ally_type"] - data["min_ally_type"]
    if run.task.kinds:
        names = [unit.name for unit in run.task.allies.types]
        assert names == [run.task.kinds[kind] for kind in kinds.tolist()]
