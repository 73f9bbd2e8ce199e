"""Neighbour interaction in the arenas agrees with the whole team and with the authors' code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment
from fullrank.environments.arena.config import ArenaConfig
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.neighbourhood import ArenaNeighbourhood, some
from fullrank.environments.neighbourhood import Neighbourhood, make_neighbourhood

from .recordings import AnyArray, Recording, load, recordings
from .test_arena_golden import TASKS

TRANSITIONS = recordings(*(f"darl1n_{task}_*_neighbor" for task in TASKS))


def of_good_agents(data: Recording) -> Recording:
    """Exclude samples of adversaries; the reference takes their neighbours for good agents'."""
    samples, good = len(data["agent_id"]), data["agent_adversary"][data["agent_id"]] == 0
    per_agent = {"agent_size", "agent_accel", "agent_max_speed", "agent_adversary", "landmark_size"}
    return {
        key: values[good] if values.shape[:1] == (samples,) and key not in per_agent else values
        for key, values in data.items()
    }


def recorded(path: Path, data: Recording) -> tuple[Arena, ArenaNeighbourhood]:
    """The recording's worlds, and neighbour interaction with the authors' margin."""
    copies, agents = data["init_pos"].shape[:2]
    config: Any = next(cls for task, cls in TASKS.items() if f"_{task}_" in path.stem)
    task: ArenaConfig = config(contacts=True, margin=float(data["prospective_margin"]))
    arena = Arena(task, agents=agents, copies=copies)
    arena.crowd.position = data["init_pos"].transpose(2, 0, 1).copy()
    arena.crowd.velocity = data["init_vel"].transpose(2, 0, 1).copy()
    arena.crowd.food = data["init_landmark"].transpose(2, 0, 1).copy()
    return arena, ArenaNeighbourhood(task, agents=agents)


def by_agent(here: Neighbourhood, values: AnyArray, agents: int) -> AnyArray:
    """Values per slot as values per agent, 0 for absent agents, shape (S, M, ...)."""
    result = np.zeros((len(values), agents, *values.shape[2:]), values.dtype)
    row, slot = np.nonzero(here.agent >= 0)
    result[row, here.agent[row, slot]] = values[row, slot]
    return result


@pytest.mark.parametrize("path", TRANSITIONS, ids=lambda path: path.stem)
def test_transitions_equal_the_reference_s(path: Path) -> None:
    data = of_good_agents(load(path))
    arena, local = recorded(path, data)
    samples, agents = data["init_pos"].shape[:2]
    here = local.around(
        arena, data["agent_id"], np.arange(samples), generator=np.random.default_rng(0)
    )
    central = np.eye(agents, dtype=bool)[data["agent_id"]]
    acting = data["acting"].astype(bool)
    np.testing.assert_array_equal(by_agent(here, here.acting, agents), acting)
    neighbour = by_agent(here, here.neighbour, agents)
    np.testing.assert_array_equal(neighbour, data["neighbor"].astype(bool) | central)
    first = by_agent(here, here.observation, agents)
    expected = np.where(acting[..., None], data["init_obs"], 0)
    np.testing.assert_array_equal(first, expected.astype(np.float32))
    action = np.take_along_axis(data["action"], here.agent[..., None].clip(0), axis=1)
    after = local.step(action)
    seen = data["obs_mask"].astype(bool)
    np.testing.assert_array_equal(by_agent(here, after.neighbour, agents), seen)
    expected = np.where(seen[..., None], data["obs"], 0).astype(np.float32)
    np.testing.assert_array_equal(by_agent(here, after.observation, agents), expected)
    np.testing.assert_allclose(after.reward, data["reward"], rtol=0, atol=1e-12)


LOCAL: dict[str, Any] = {"local_rewards": True, "moving_start": True, "food_distance": 0.6}


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(TASKS)),
    agents=st.integers(2, 40),
    d=st.sampled_from([0.0, 0.1, 0.3, 0.8]),
    half_width=st.sampled_from([0.5, 2.0, 4.0]),
    contacts=st.booleans(),
    everything=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_an_agent_s_transition_is_that_of_the_whole_team(
    name: str,
    agents: int,
    d: float,
    half_width: float,
    contacts: bool,
    everything: bool,
    seed: int,
) -> None:
    params = LOCAL | {"distance": d, "half_width": half_width, "contacts": contacts}
    params |= {"neighbours_seen": 7, "food_seen": 3}
    if name != "food_collection" and not everything:
        params["adversary_distance"] = 0.4
    if everything:
        params["food_distance"] = None
    arena = make_environment(name, agents=agents, copies=3, **params)
    local = make_neighbourhood(name, agents=agents, **params)
    assert isinstance(arena, Arena)
    assert isinstance(local, ArenaNeighbourhood)
    generator = np.random.default_rng(seed)
    before = arena.reset([seed, seed + 1, seed + 2], [0, 1, 2]).reshape(3, agents, -1)
    arena.crowd.live[:] = generator.random((3, agents)) < 0.9
    before = arena.observation().reshape(3, agents, -1)
    copy = np.repeat(np.arange(3), 4)
    agent = generator.integers(agents, size=12)
    here = local.around(arena, agent, copy, generator=generator)
    row, slot = np.nonzero(here.acting)
    who = here.agent[row, slot]
    np.testing.assert_array_equal(here.observation[row, slot], before[copy[row], who])
    action = generator.dirichlet(np.ones(5), size=(3, agents)).astype(np.float32)
    step = arena.step(action.reshape(3, -1))
    after = local.step(action[copy[:, None], here.agent])
    np.testing.assert_array_equal(after.reward, step.reward[copy, agent])
    check_next_neighbours(arena, here, after.neighbour, agent, copy)
    seen = step.observation.reshape(3, agents, -1)
    row, slot = np.nonzero(after.neighbour)
    np.testing.assert_array_equal(
        after.observation[row, slot], seen[copy[row], here.agent[row, slot]]
    )


def check_next_neighbours(
    arena: Arena, here: Neighbourhood, found: AnyArray, agent: AnyArray, copy: AnyArray
) -> None:
    """The slots contain all neighbours in the whole world."""
    position = arena.crowd.position
    for sample in range(len(agent)):
        offset = position[:, copy[sample]] - position[:, copy[sample], agent[sample], None]
        away = np.sqrt(np.square(offset[0]) + np.square(offset[1]))
        sight = arena.layout.traits.sight[0, agent[sample]]
        assert here.agent[sample][found[sample]].tolist() == np.flatnonzero(away <= sight).tolist()


def test_samples_are_those_of_a_reset_world() -> None:
    """Counts of neighbours and of acting agents, and rewards, agree within four deviations."""
    params: dict[str, Any] = {"distance": 0.3, "half_width": 2.0, "moving_start": True}
    params |= {"food_distance": 0.7, "local_rewards": True}
    arena = make_environment("food_collection", agents=20, copies=2000, **params)
    local = make_neighbourhood("food_collection", agents=20, **params)
    assert isinstance(arena, Arena)
    assert isinstance(local, ArenaNeighbourhood)
    arena.reset(range(2000), range(2000))
    agent = np.arange(2000) % 20

    def statistics(here: Neighbourhood) -> AnyArray:
        action = np.zeros((*here.agent.shape, 5), dtype=np.float32)
        after = local.step(action)
        row = np.arange(2000)
        own = here.observation[row, here.central]
        present = np.abs(here.agent - agent[:, None]) * here.acting
        return np.stack(
            [
                here.neighbour.sum(axis=1),
                here.acting.sum(axis=1),
                present.sum(axis=1) / here.acting.sum(axis=1),
                after.neighbour.sum(axis=1),
                after.reward,
                *np.abs(own[:, [0, 1, 2, 3, 5, 6]]).T,
            ]
        )

    whole = statistics(
        local.around(arena, agent, np.arange(2000), generator=np.random.default_rng(0))
    )
    drawn = statistics(local.start(agent, generator=np.random.default_rng(5)))
    error = np.sqrt((whole.var(axis=1) + drawn.var(axis=1)) / 2000)
    assert (np.abs(whole.mean(axis=1) - drawn.mean(axis=1)) < 4 * error).all()


@given(number=st.integers(0, 12), seed=st.integers(0, 100), data=st.data())
def test_some_are_different_and_as_many_as_asked_for(
    number: int, seed: int, data: st.DataObject
) -> None:
    counts = np.array(data.draw(st.lists(st.integers(0, number), min_size=1, max_size=8)))
    for row, count in zip(some(counts, number, np.random.default_rng(seed)), counts, strict=True):
        chosen = row[row >= 0]
        assert len(chosen) == len(set(chosen.tolist())) == count
        assert (row[count:] == -1).all()
        assert set(chosen.tolist()) <= set(range(number))


def test_a_task_in_which_all_depend_on_all_has_no_local_interaction() -> None:
    with pytest.raises(ConfigError, match=r"rover_tower has no neighbour interaction.*grassland"):
        make_neighbourhood("rover_tower")
