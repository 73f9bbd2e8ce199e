"""Holders of a unit are in different domains where possible, and few units move."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.codes import make_code
from fullrank.common.types import BoolArray
from fullrank.run.placement import Domain, Placement, place

ALONE: Domain = ("here",)


@st.composite
def problems(
    draw: st.DrawFn, *, hosts: int, learners: int = 6
) -> tuple[BoolArray, list[Domain], BoolArray]:
    """Random rows and learners, on hosts in two zones, with random previous units."""
    count = draw(st.integers(1, learners))
    rows, units = draw(st.integers(1, count)), draw(st.integers(1, 4))
    bits = st.lists(st.booleans(), min_size=units, max_size=units)
    support = np.array([draw(bits) for _ in range(rows)])
    held = np.array([draw(bits) for _ in range(count)])
    where = [draw(st.integers(0, hosts - 1)) for _ in range(count)]
    return support, [(f"zone{host % 2}", f"host{host}") for host in where], held


def shared(support: BoolArray, domains: list[Domain], holders: tuple[int, ...]) -> int:
    """Shared domains by definition."""
    total = 0
    for unit in range(support.shape[1]):
        on = [domains[holder] for holder, row in zip(holders, support, strict=True) if row[unit]]
        for index, one in enumerate(on):
            for other in on[:index]:
                total += (one[0] == other[0]) + (one == other)
    return total


def changed(support: BoolArray, held: BoolArray, holders: tuple[int, ...]) -> int:
    """Moved units by definition."""
    return sum(int((row & ~held[each]).sum()) for row, each in zip(support, holders, strict=True))


def total_of(problem: tuple[BoolArray, list[Domain], BoolArray]) -> Placement:
    found = place(*problem)
    support, domains, held = problem
    assert len(set(found.holders)) == len(found.holders) == len(support)
    assert found.shared == shared(support, domains, found.holders)
    assert found.changed == changed(support, held, found.holders)
    return found


@given(problem=problems(hosts=1))
def test_where_all_are_on_one_host_as_few_units_change_hands_as_possible(
    problem: tuple[BoolArray, list[Domain], BoolArray],
) -> None:
    support, domains, held = problem
    ways = permutations(range(len(domains)), len(support))
    assert total_of(problem).changed == min(changed(support, held, way) for way in ways)


@settings(max_examples=60)
@given(problem=problems(hosts=4, learners=5))
def test_no_swap_of_two_learners_would_be_better(
    problem: tuple[BoolArray, list[Domain], BoolArray],
) -> None:
    support, domains, held = problem
    found = total_of(problem)
    spares = [each for each in range(len(domains)) if each not in found.holders]
    learners = [*found.holders, *spares]
    for one in range(len(learners)):
        for other in range(one):
            way = list(learners)
            way[one], way[other] = way[other], way[one]
            holders = tuple(way[: len(support)])
            cost = shared(support, domains, holders), changed(support, held, holders)
            assert (found.shared, found.changed) <= cost


@pytest.mark.parametrize("tolerance", [1, 2, 3])
@pytest.mark.parametrize("rows", [8, 12, 15])
def test_a_unit_survives_the_loss_of_hosts_as_it_does_that_of_rows(
    rows: int, tolerance: int
) -> None:
    support = make_code("cyclic", rows=rows, units=4, tolerance=tolerance).matrix != 0
    domains: list[Domain] = [(f"host{learner // 2}",) for learner in range(rows)]  # two on each
    held = np.zeros((rows, 4), bool)
    found = place(support, domains, held)
    for unit in range(4):
        hosts = [
            domains[each] for each, row in zip(found.holders, support, strict=True) if row[unit]
        ]
        assert len(set(hosts)) == len(hosts) == tolerance + 1


def test_holders_are_in_three_zones_before_they_are_on_three_hosts_of_two() -> None:
    support = np.ones((3, 1), bool)
    domains: list[Domain] = [(zone, f"{zone}{number}") for zone in "abc" for number in range(3)]
    found = place(support, domains, np.zeros((9, 1), bool))
    assert {domains[each][0] for each in found.holders} == {"a", "b", "c"}


def test_who_computed_a_unit_keeps_it_when_another_leaves() -> None:
    code = make_code("cyclic", rows=15, units=8, tolerance=2).matrix != 0
    left = make_code("cyclic", rows=14, units=8, tolerance=2).matrix != 0
    stayed = np.delete(code, 4, axis=0)
    found = place(left, [ALONE] * 14, stayed)
    lost = int(code[4].sum())
    assert lost <= found.changed < changed(left, stayed, tuple(range(14)))
