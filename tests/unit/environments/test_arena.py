"""The arenas beyond the recordings: sizes, options, walls, and the rules of their rewards."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment, proximity
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.food_collection import FoodCollection
from fullrank.environments.arena.grassland import Grassland
from fullrank.training.evaluation import random_actions

from .recordings import AnyArray

TASKS = ("food_collection", "grassland", "adversarial_battle")


def stand(arena: Arena, agents: list[tuple[float, float]], food: list[tuple[float, float]]) -> None:
    """Put everything of copy 0 at rest at the given positions."""
    arena.reset([1], [0])
    arena.crowd.position[:, 0] = np.array(agents).T
    arena.crowd.velocity[:] = 0.0
    arena.crowd.food[:, 0] = np.array(food).T


def rest(arena: Arena) -> AnyArray:
    """Rewards of one step without actions."""
    nothing = np.tile(np.eye(5, dtype=np.float32)[0], (arena.copies, len(arena.agents)))
    reward: AnyArray = arena.step(nothing).reward[0]
    return reward


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"distance": -0.1}, "distance: within a distance of -0.1 no agent has even itself"),
        ({"distance": float("nan")}, "no agent has even itself as neighbour"),
        ({"half_width": 0.0}, "half_width: a world of half width 0.0 holds no agent"),
        ({"half_width": float("inf")}, "holds no agent"),
        ({"food": -1}, "food must be 0 or more: -1"),
        ({"neighbours_seen": -2}, "neighbours_seen must be 0 or more: -2"),
        ({"food_distance": -1.0}, "food_distance must be 0 or more: -1.0"),
        ({"horizon": 0}, "horizon must be from 1 to 4611686018427387904: 0"),
        ({"horizon": 2**63}, "horizon must be from 1 to 4611686018427387904: 9"),
    ],
)
def test_an_impossible_world_names_its_rule(name: str, params: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        make_environment(name, copies=1, **params)


@pytest.mark.parametrize("name", TASKS)
def test_the_contact_distance_is_the_largest_from_which_agents_at_rest_touch_within_a_step(
    name: str,
) -> None:
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    copies = np.arange(len(pairs))
    arena = make_environment(name, agents=4, copies=len(pairs), distance="contact")
    assert isinstance(arena, Arena)
    size = arena.layout.traits.size[0, pairs].sum(axis=1)
    action = np.zeros((len(pairs), 4, 5), dtype=np.float32)
    action[copies, pairs[:, 0], 1] = action[copies, pairs[:, 1], 2] = 1.0  # towards each other

    def touch(apart: float) -> AnyArray:
        arena.reset(range(len(pairs)), range(len(pairs)))
        arena.crowd.position[:, copies, pairs[:, 0]] = 0.0
        arena.crowd.position[:, copies, pairs[:, 1]] = [[apart], [0.0]]
        arena.step(action.reshape(len(pairs), -1))
        x = arena.crowd.position[0]
        touching: AnyArray = x[copies, pairs[:, 1]] - x[copies, pairs[:, 0]] < size
        return touching

    distance = arena.layout.traits.sight.min()
    assert touch(distance - 1e-6).any()
    assert not touch(distance + 1e-6).any()


@given(
    name=st.sampled_from(TASKS),
    agents=st.integers(2, 14),
    params=st.fixed_dictionaries(
        {},
        optional={
            "distance": st.floats(0, 5),
            "half_width": st.floats(0.1, 5),
            "food": st.integers(1, 9),
            "food_seen": st.integers(1, 9),
            "food_distance": st.floats(0, 3),
            "neighbours_seen": st.integers(1, 20),
            "contacts": st.booleans(),
            "moving_start": st.booleans(),
            "local_rewards": st.booleans(),
        },
    ),
)
def test_any_world_plays_alike_with_comparisons_and_with_cells(
    name: str, agents: int, params: dict[str, Any]
) -> None:
    def play() -> list[AnyArray]:
        arena = make_environment(name, agents=agents, copies=2, **params)
        seen = [arena.reset([1, 2], [0, 1])]
        act = random_actions(arena.agents, seed=3)
        steps = [arena.step(act(seen[0])) for _ in range(4)]
        return [*seen, *(part for step in steps for part in (step.observation, step.reward))]

    compared = play()
    assert all(np.isfinite(part).all() for part in compared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proximity, "COMPARED", -1)
        for one, other in zip(compared, play(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_grass_eaten_by_one_is_gone_for_those_after_it_unless_rewards_are_local() -> None:
    for local, meals in ((False, [20.0, 0.0]), (True, [20.0, 20.0])):
        arena = Grassland(adversaries=1, local_rewards=local, food=1).make(agents=3, copies=1)
        stand(arena, [(-1.4, -1.4), (0.0, 0.0), (0.05, 0.0)], [(0.02, 0.0)])
        arena.respawns = [iter([np.array([1.0, 1.0])])]
        paid = rest(arena)[1:]
        assert [20.0 if reward > 10 else 0.0 for reward in paid] == meals
        assert arena.crowd.food[:, 0, 0].tolist() == [1.0, 1.0]


def test_food_beyond_the_distance_is_not_seen_and_costs_the_distance() -> None:
    arena = FoodCollection(food=2, food_distance=0.5, half_width=2.0).make(agents=1, copies=1)
    stand(arena, [(0.0, 0.0)], [(1.0, 0.0), (0.0, 1.5)])
    assert rest(arena).tolist() == [-0.5]
    assert not arena.observation()[0, 5:].any()


def test_a_neighbour_without_a_place_is_not_seen() -> None:
    arena = FoodCollection(neighbours_seen=1, distance=1.0, food=1).make(agents=3, copies=1)
    stand(arena, [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5)], [(1.0, 1.0)])
    seen = arena.observation().reshape(3, -1)[:, 8:]
    assert seen[:, :2].tolist() == [[0.5, 0.0], [-0.5, 0.0], [0.0, -0.5]]
    assert seen[:, 4].tolist() == [1.0, 1.0, 1.0]
