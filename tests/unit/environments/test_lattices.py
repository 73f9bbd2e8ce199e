"""The lattice tasks beyond the recordings: sizes, orders and draws."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment
from fullrank.environments.lattice.grid import ABSENT, king, torus, within
from fullrank.environments.lattice.ising import Ising
from fullrank.environments.lattice.wireless import Wireless

IMPOSSIBLE = [
    ("ising", 10, {}, r"must be a square \(9, 16, 25, ...\): 10"),
    ("ising", 4, {}, "side 3 or more"),
    ("wireless", 8, {}, r"must be a square \(4, 9, 16, ...\): 8"),
    ("wireless", 9, {"deadline": 0}, "deadline must be at least 1: 0"),
    ("ising", 9, {"horizon": 0}, "horizon must be at least 1: 0"),
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
