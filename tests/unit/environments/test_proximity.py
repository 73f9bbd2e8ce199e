"""The proximity graph: cells find the same pairs as a full comparison, without making all pairs."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.environments import proximity
from fullrank.environments.proximity import ABSENT, Nearest, Pairs, nearest, pairs, ranks

from .recordings import AnyArray


@contextmanager
def cells_only() -> Iterator[None]:
    """Use cells for any number of points."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proximity, "COMPARED", -1)
        yield


@st.composite
def crowds(draw: st.DrawFn) -> tuple[AnyArray, AnyArray]:
    """Two sets of points in some copies, some of them absent, some in one place."""
    copies, one, other = (draw(st.integers(1, most)) for most in (3, 12, 12))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    width = draw(st.sampled_from([1e-3, 1.0, 5.0, 1e4]))
    grid = draw(st.sampled_from([0, 4]))  # many equal distances
    points = generator.uniform(-width, width, size=(2, copies, one + other))
    if grid:
        points = np.round(points / width * grid) / grid * width
    nowhere = generator.random((copies, one + other)) < draw(st.sampled_from([0.0, 0.3]))
    points[:, nowhere] = np.nan
    return points[:, :, :one], points[:, :, one:]


def brute_force(one: AnyArray, other: AnyArray, reach: AnyArray) -> list[tuple[int, int, int]]:
    return [
        (copy, first, second)
        for copy in range(one.shape[1])
        for first in range(one.shape[2])
        for second in range(other.shape[2])
        if np.sqrt(np.square(other[:, copy, second] - one[:, copy, first]).sum())
        <= reach[copy, first]
    ]


def listed(found: Pairs) -> list[tuple[int, int, int]]:
    return list(zip(found.copy.tolist(), found.one.tolist(), found.other.tolist(), strict=True))


@given(crowd=crowds(), reach=st.sampled_from([0.0, 1e-3, 0.25, 1.0, 3.0, 100.0]))
def test_cells_and_comparisons_find_the_pairs_that_brute_force_finds(
    crowd: tuple[AnyArray, AnyArray], reach: float
) -> None:
    one, other = crowd
    limits = np.where(np.arange(one.shape[2]) % 2, reach, reach / 3) * np.ones(one.shape[1:])
    expected = brute_force(one, other, limits)
    assert listed(pairs(one, other, limits)) == expected
    with cells_only():
        assert listed(pairs(one, other, limits)) == expected


@given(crowd=crowds(), count=st.integers(1, 5), limit=st.sampled_from([np.inf, 0.5, 0.0]))
def test_cells_and_comparisons_find_the_same_nearest(
    crowd: tuple[AnyArray, AnyArray], count: int, limit: float
) -> None:
    one, other = crowd
    compared = nearest(one, other, count, limit=limit)
    with cells_only():
        found = nearest(one, other, count, limit=limit)
    np.testing.assert_array_equal(found.which, compared.which)
    np.testing.assert_array_equal(found.squared, compared.squared)
    check_nearest(compared, one, other, limit)


def check_nearest(found: Nearest, one: AnyArray, other: AnyArray, limit: float) -> None:
    somewhere = np.argwhere(np.isfinite(one[0]))
    np.testing.assert_array_equal(np.stack([found.copy, found.one], axis=1), somewhere)
    for (copy, first), which in zip(somewhere.tolist(), found.which, strict=True):
        squared = np.square(other[:, copy] - one[:, copy, first, None])
        squared = squared[0] + squared[1]
        near = [i for i in np.argsort(squared, kind="stable") if np.sqrt(squared[i]) <= limit]
        expected = near[: len(which)]
        assert which.tolist() == [*expected, *[ABSENT] * (len(which) - len(expected))]


@given(crowd=crowds())
def test_ranks_count_the_pairs_of_each_first_point(crowd: tuple[AnyArray, AnyArray]) -> None:
    near = pairs(*crowd, 1.0)
    count: dict[tuple[int, int], int] = {}
    expected = []
    for copy, one, _ in listed(near):
        expected.append(count.get((copy, one), 0))
        count[copy, one] = expected[-1] + 1
    assert ranks(near).tolist() == expected


@pytest.mark.parametrize("search", ["pairs", "nearest"])
def test_many_points_are_never_compared_each_with_each(search: str) -> None:
    agents = 4096
    half_width = np.sqrt(agents) / 2  # one to a unit of area
    points = np.random.default_rng(1).uniform(-half_width, half_width, size=(2, 1, agents))
    tracemalloc.start()
    if search == "pairs":
        found = pairs(points, points, 1.0).one.size
    else:
        found = nearest(points, points, 3).which.size
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found > agents
    assert peak_bytes < agents * agents  # an eighth of one matrix of distances
