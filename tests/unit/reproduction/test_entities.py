"""Layouts of environments place entities correctly in observations."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment
from fullrank.environments.arena.environment import Arena
from fullrank.environments.lattice.environment import LatticeEnvironment
from fullrank_reproduction.entities import EntityKind, entities_of

EVERYBODY = {"distance": 100.0}


def attended(
    kind: EntityKind, observation: np.ndarray[Any, Any], agent: int
) -> np.ndarray[Any, Any]:
    """Entries of an agent's places for one kind, shape (n, f)."""
    own = observation.reshape(len(kind.columns), -1)[agent]
    seen: np.ndarray[Any, Any] = own[kind.columns[agent]][kind.placed[agent]]
    return seen


@pytest.mark.parametrize(
    ("name", "agents", "params"),
    [
        ("food_collection", 5, EVERYBODY),
        ("grassland", 5, {"adversaries": 2, **EVERYBODY}),
        ("adversarial_battle", 6, EVERYBODY),
    ],
)
def test_others_stand_where_an_arena_says(name: str, agents: int, params: dict[str, Any]) -> None:
    arena = make_environment(name, agents=agents, copies=1, moving_start=True, **params)
    assert isinstance(arena, Arena)
    observation = arena.reset([3], [0])[0]
    arena.crowd.live[0, 0] = False
    observation = arena.observation()[0]
    described = entities_of(arena, name)
    position, velocity = arena.crowd.position[:, 0].T, arena.crowd.velocity[:, 0].T
    bodies = [body.kind for body in arena.layout.bodies]
    for agent in range(agents):
        own = observation.reshape(agents, -1)[agent][described.own]
        alive = float(agent != 0)
        expected = [*velocity[agent], *position[agent], alive]
        np.testing.assert_allclose(own, expected, rtol=1e-6)
        for kind in described.kinds[1:]:
            others = [j for j in range(agents) if j != agent and bodies[j] == kind.name]
            truth = [[*position[j] - position[agent], *velocity[j], float(j != 0)] for j in others]
            seen = attended(kind, observation, agent)
            np.testing.assert_allclose(seen, np.reshape(truth, (-1, 5)), rtol=1e-5, atol=1e-6)
        food = attended(described.kinds[0], observation, agent)
        places = arena.crowd.food[:, 0].T - position[agent]
        nearest = places[np.argsort((places**2).sum(axis=1))]
        np.testing.assert_allclose(food, nearest, rtol=1e-5, atol=1e-6)


def test_every_entry_of_an_observation_that_says_something_has_one_place() -> None:
    described = entities_of(make_environment("grassland", agents=6, copies=1, **EVERYBODY), "")
    places = [*described.own]
    for kind in described.kinds:
        places += kind.columns[4][kind.placed[4]].ravel().tolist()
    third_of_food = [7 + 3 * piece for piece in range(3)]
    assert Counter(map(int, [*places, *third_of_food])) == Counter(range(5 + 3 * 3 + 5 * 5))


@pytest.mark.parametrize(("name", "agents"), [("ising", 9), ("wireless", 9)])
def test_neighbours_stand_where_a_lattice_says(name: str, agents: int) -> None:
    lattice = make_environment(name, agents=agents, copies=1)
    assert isinstance(lattice, LatticeEnvironment)
    observation = lattice.reset([1], [0])[0]
    (kind,) = entities_of(lattice, name).kinds
    for agent in range(agents):
        around = [j for j in lattice.hood[agent, 1:] if j >= 0]
        assert np.array_equal(attended(kind, observation, agent), lattice.state[0, around])
    assert not kind.blank  # a neighbour with no bit set is there


def test_a_contest_in_which_sides_cannot_be_told_is_refused() -> None:
    for params in ({}, {"neighbours_seen": 3, **EVERYBODY}):
        arena = make_environment("grassland", agents=6, copies=1, **params)
        with pytest.raises(ConfigError, match=r"environment\.distance = 100"):
            entities_of(arena, "grassland")


def test_an_environment_that_does_not_say_is_refused() -> None:
    with pytest.raises(ConfigError, match="observations of keep_away is unknown"):
        entities_of(make_environment("keep_away", copies=1), "keep_away")
