"""Neighbour interaction on lattices agrees with the whole team and with the authors' code."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment
from fullrank.environments.lattice.environment import LatticeEnvironment
from fullrank.environments.lattice.ising import Ising
from fullrank.environments.lattice.neighbourhood import LatticeNeighbourhood
from fullrank.environments.lattice.wireless import Uplink
from fullrank.environments.neighbourhood import Neighbourhood, make_neighbourhood

from .recordings import AnyArray, load, recordings

TRANSITIONS = recordings("darl1n_ising_*_neighbor")


class FixedGenerator(np.random.Generator):
    """A generator that returns given numbers."""

    def __init__(self, values: AnyArray) -> None:
        super().__init__(np.random.PCG64(0))
        self._values = values

    def random(self, *shape: Any, **_: Any) -> Any:
        assert shape == (self._values.shape,)
        return self._values


def spread(here: Neighbourhood, values: AnyArray, agents: int) -> AnyArray:
    """Values per slot as values per agent, 0 for absent agents, shape (S, M, ...)."""
    result = np.zeros((len(values), agents, *values.shape[2:]), values.dtype)
    row, slot = np.nonzero(here.agent >= 0)
    result[row, here.agent[row, slot]] = values[row, slot]
    return result


@pytest.mark.parametrize("path", TRANSITIONS, ids=lambda path: path.stem)
def test_transitions_of_spins_equal_the_reference_s(path: Path) -> None:
    data = load(path)
    samples, agents = data["init_spin"].shape
    spins = Ising().make(agents=agents, copies=samples)
    spins.state[..., 0] = data["init_spin"]
    local = Ising().neighbourhood(agents=agents)
    every = np.arange(samples)
    nothing = np.random.default_rng(0)
    here = local.around(spins, data["agent_id"], every, generator=nothing)
    acting, seen = data["acting"].astype(bool), data["obs_mask"].astype(bool)
    np.testing.assert_array_equal(spread(here, here.acting, agents), acting)
    np.testing.assert_array_equal(spread(here, here.neighbour, agents), seen)
    first = np.where(acting[..., None], data["init_obs"], 0)
    np.testing.assert_array_equal(spread(here, here.observation, agents), first)
    after = local.step(data["action"][every[:, None], here.agent])
    np.testing.assert_array_equal(after.reward, data["reward"])
    last = np.where(seen[..., None], data["obs"], 0)
    np.testing.assert_array_equal(spread(here, after.observation, agents), last)


@given(
    name=st.sampled_from(["ising", "wireless"]),
    side=st.integers(3, 11),
    seed=st.integers(0, 1000),
)
def test_an_agent_s_transition_is_that_of_the_whole_team(name: str, side: int, seed: int) -> None:
    agents = side * side
    params = {} if name == "ising" else {"simultaneous": True, "deadline": 3}
    lattice = make_environment(name, agents=agents, copies=2, **params)
    local = make_neighbourhood(name, agents=agents, **params)
    assert isinstance(lattice, LatticeEnvironment)
    assert isinstance(local, LatticeNeighbourhood)
    generator = np.random.default_rng(seed)
    before = lattice.reset([seed, seed + 1], [0, 1]).reshape(2, agents, -1)
    copy, agent = np.repeat([0, 1], 5), generator.integers(agents, size=10)
    chance = generator.random((2, agents, 2))
    if isinstance(lattice, Uplink):
        lattice.chances = [iter([chance[0]]), iter([chance[1]])]
    slots = local.around(lattice, agent, copy, generator=generator).agent
    generator = cast("np.random.Generator", FixedGenerator(chance[copy[:, None], slots]))
    here = local.around(lattice, agent, copy, generator=generator)
    row, slot = np.nonzero(here.acting)
    who = here.agent[row, slot]
    np.testing.assert_array_equal(here.observation[row, slot], before[copy[row], who])
    size = lattice.agents[0].action.size
    action = np.eye(size, dtype=np.float32)[generator.integers(size, size=(2, agents))]
    step = lattice.step(action.reshape(2, -1))
    after = local.step(action[copy[:, None], here.agent])
    np.testing.assert_array_equal(after.reward, step.reward[copy, agent])
    row, slot = np.nonzero(after.neighbour)
    seen = step.observation.reshape(2, agents, -1)
    np.testing.assert_array_equal(
        after.observation[row, slot], seen[copy[row], here.agent[row, slot]]
    )
    for sample, found in enumerate(after.neighbour):
        hood = lattice.hood[agent[sample]]
        assert here.agent[sample][found].tolist() == sorted(hood[hood >= 0].tolist())


def test_users_in_turn_have_no_local_interaction() -> None:
    with pytest.raises(ConfigError, match=r"needs environment\.simultaneous = true"):
        make_neighbourhood("wireless")
