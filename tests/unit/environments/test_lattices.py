"""Lattices: their neighbours, and spins and packets that equal the reference."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment
from fullrank.environments.lattice.environment import (
    ABSENT,
    LatticeEnvironment,
    king,
    torus,
    within,
)
from fullrank.environments.lattice.ising import Ising, aligned
from fullrank.environments.lattice.neighbourhood import LatticeNeighbourhood
from fullrank.environments.lattice.wireless import Uplink, Wireless, chosen, reachable
from fullrank.environments.neighbourhood import Neighbourhood, make_neighbourhood

from .recordings import HERE, AnyArray, Recording, load, recordings

IMPOSSIBLE = [
    ("ising", 10, {}, r"must be a square \(9, 16, 25, ...\): 10"),
    ("ising", 4, {}, "side 3 or more"),
    ("wireless", 8, {}, r"must be a square \(4, 9, 16, ...\): 8"),
    ("wireless", 9, {"deadline": 0}, "deadline must be at least 1: 0"),
    ("ising", 9, {"horizon": 0}, "horizon must be from 1 to 4611686018427387904: 0"),
]


@pytest.mark.parametrize(("name", "agents", "params", "rule"), IMPOSSIBLE)
def test_an_impossible_lattice_names_its_rule(
    name: str, agents: int, params: dict[str, int], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        make_environment(name, agents=agents, copies=1, **params)


@given(side=st.integers(3, 12))
def test_neighbours_on_a_torus_are_mutual_and_four(side: int) -> None:
    hood = torus(side)
    for agent, row in enumerate(hood):
        assert row[0] == agent
        assert len({*row}) == 5
        assert list(row[1:]) == sorted(row[1:])
        assert all(agent in hood[other, 1:] for other in row[1:])


@given(side=st.integers(1, 12))
def test_neighbours_on_a_grid_are_those_that_a_king_reaches(side: int) -> None:
    places = np.stack(np.divmod(np.arange(side * side), side), axis=1)
    apart = np.abs(places[:, None] - places).max(axis=-1)
    for agent, row in enumerate(king(side)):
        present = row[1:][row[1:] != ABSENT]
        assert present.tolist() == np.flatnonzero(apart[agent] == 1).tolist()
        assert row.tolist() == [agent, *present, *[ABSENT] * (8 - len(present))]


@given(side=st.integers(3, 9), hops=st.integers(0, 3))
def test_within_lists_everybody_so_many_hops_away(side: int, hops: int) -> None:
    places = np.stack(np.divmod(np.arange(side * side), side), axis=1)
    apart = np.abs(places[:, None] - places)
    apart = np.minimum(apart, side - apart).sum(axis=-1)
    for agent, row in enumerate(within(torus(side), hops)):
        assert row[row != ABSENT].tolist() == np.flatnonzero(apart[agent] <= hops).tolist()


@pytest.mark.parametrize(("agents", "extra_step", "most"), [(9, True, 468), (16, True, 832)])
def test_aligned_spins_reach_the_optimum_of_the_paper(
    agents: int, extra_step: bool, most: int
) -> None:
    spins = Ising(extra_step=extra_step).make(agents=agents, copies=1)
    spins.reset([1], [0])
    earned, ended = 0.0, False
    while not ended:
        step = spins.step(np.tile(np.array([[1, 0]], np.float32), agents))
        earned, ended = earned + float(step.reward.sum()), bool(step.ended[0])
    assert earned == most


def send(choices: list[int]) -> np.ndarray[Any, Any]:
    return np.eye(5, dtype=np.float32)[choices].reshape(1, -1)


@pytest.mark.parametrize(("simultaneous", "earned"), [(False, [0, 1, 0, 0]), (True, [0] * 4)])
def test_users_in_turn_see_that_a_packet_before_them_was_dropped(
    simultaneous: bool, earned: list[float]
) -> None:
    uplink = Wireless(simultaneous=simultaneous).make(agents=4, copies=1)
    uplink.reset([1], [0])
    uplink.rates = np.ones(9)
    uplink.state[0] = [[True, False], [True, False], [False, False], [False, False]]
    uplink.chances = [iter([np.full((4, 2), 0.5)])]  # no transmission fails, no packet arrives
    reward = uplink.step(send([2, 1, 0, 0])).reward[0]  # the same point, between the two cells
    assert reward.tolist() == earned


ISING = recordings("darl1n_ising_m[0-9]", "darl1n_ising_m[0-9][0-9]")
WIRELESS = recordings("wireless_3x3_z*")
CUTS = (0.2, 0.4, 0.6, 0.8)
"""Thresholds at which the reference cuts a number into five choices."""


def test_every_recorded_size_is_replayed() -> None:
    kept = [path.stem for path in [*ISING, *WIRELESS] if path.parent == HERE]
    assert len(kept) == 5


@pytest.mark.parametrize("path", ISING, ids=lambda path: path.stem)
def test_spins_equal_the_reference(path: Path) -> None:
    data = load(path)
    copies, steps, agents, _ = data["action"].shape
    spins = Ising().make(agents=agents, copies=copies)
    np.testing.assert_array_equal(spins.hood[:, 1:], data["neighbor_index"])
    spins.state[..., 0] = data["init_spin"]
    np.testing.assert_array_equal(spins.observation(), data["init_obs"].reshape(copies, -1))
    np.testing.assert_array_equal(aligned(spins.state, spins.hood), data["init_reward"])
    for t in range(steps):
        step = spins.step(data["action"][:, t].reshape(copies, -1))
        np.testing.assert_array_equal(spins.state[..., 0], data["spin"][:, t])
        np.testing.assert_array_equal(step.observation, data["obs"][:, t].reshape(copies, -1))
        np.testing.assert_array_equal(step.reward, data["reward"][:, t])
    assert step.ended.all()


def chances(data: Recording, episode: int) -> Iterator[AnyArray]:
    """Draws of the reference: no number where none was needed, and bits of arrival."""
    success, arrived = data["success_draw"][episode], data["arrival_draw"][episode]
    return iter(np.stack([np.nan_to_num(success, nan=0.5), 1.0 - arrived], axis=-1))


@pytest.mark.parametrize("path", WIRELESS, ids=lambda path: path.stem)
def test_packets_equal_the_reference(path: Path) -> None:
    data = load(path)
    copies, steps, _ = data["action"].shape
    choice = np.searchsorted(CUTS, data["action"])
    replayed: list[list[AnyArray]] = []
    for episode in range(copies):  # each has access points of its own
        uplink = Wireless(deadline=int(data["deadline"])).make(agents=9, copies=1)
        uplink.state[0] = data["init_packets"][episode]
        uplink.rates, uplink.chances = data["access_rate"][episode], [chances(data, episode)]
        np.testing.assert_array_equal(uplink.observation()[0], data["init_obs"][episode].ravel())
        for t in range(steps):
            step = uplink.step(np.eye(5, dtype=np.float32)[choice[episode, t]].reshape(1, -1))
            np.testing.assert_array_equal(uplink.state[0], data["packets"][episode, t])
            np.testing.assert_array_equal(step.observation[0], data["obs"][episode, t].ravel())
            np.testing.assert_array_equal(step.reward[0], data["reward"][episode, t])
        replayed.append([step.ended])
    assert np.all(replayed)


@pytest.mark.parametrize("path", WIRELESS, ids=lambda path: path.stem)
def test_users_reach_the_access_points_of_the_reference(path: Path) -> None:
    data = load(path)
    uplink = Wireless().make(agents=9, copies=1)
    mask = np.zeros((9, 10), dtype=bool)
    np.put_along_axis(mask, uplink.hood[:, 1:], values=True, axis=1)
    np.testing.assert_array_equal(mask[:, :ABSENT], data["neighbor_mask"].astype(bool))
    np.testing.assert_array_equal(reachable(3), data["reachable"])
    action = np.eye(5, dtype=np.float32)[np.searchsorted(CUTS, data["action"])]
    points = chosen(action.reshape(-1, 9, 5), reachable(3)).reshape(data["access_point"].shape)
    np.testing.assert_array_equal(points, data["access_point"])


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
