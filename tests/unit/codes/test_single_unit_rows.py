"""A row of a single unit gives by itself the bits that solving would give, or nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes.decoding.rows import SingleUnitRows
from fullrank.common.types import EncodedVector, FloatArray
from fullrank.common.updates import snap, unit_digest

SIZES = (5, 3)


def update(unit: int, *, seed: int = 0) -> FloatArray:
    """An update on the grid, padded with zeros to the longest."""
    drawn = np.zeros(max(SIZES), np.float32)
    drawn[: SIZES[unit]] = np.random.default_rng([seed, unit]).uniform(-1.0, 1.0, SIZES[unit])
    return snap(drawn)


def offered(rows: dict[int, tuple[int, float]], *, seed: int = 0) -> SingleUnitRows:
    """Rows with their unit and coefficient, added and precomputed."""
    rows_ = SingleUnitRows(SIZES)
    for row, (unit, coefficient) in rows.items():
        coded = coefficient * update(unit, seed=seed).astype(np.float64)
        rows_.add(row, coefficient * np.eye(len(SIZES))[unit], coded)
    rows_.precompute()
    return rows_


@given(
    coefficients=st.lists(
        st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-6), min_size=2, max_size=2
    ),
    seed=st.integers(0, 99),
)
def test_every_coefficient_gives_the_update_back_bit_for_bit(
    coefficients: list[float], seed: int
) -> None:
    rows_ = offered({7: (1, coefficients[1]), 2: (0, coefficients[0])}, seed=seed)
    found = rows_.updates([2, 7])
    assert found is not None
    assert found[0].tobytes() == np.stack([update(unit, seed=seed) for unit in (0, 1)]).tobytes()
    own = [update(unit, seed=seed)[:size] for unit, size in enumerate(SIZES)]
    assert found[1] == tuple(map(unit_digest, own))


@pytest.mark.parametrize("damage", [0.0, 2.0**-20, 1e30, np.inf])
def test_a_vector_in_single_precision_gives_what_its_float64_gives(damage: float) -> None:
    found = []
    for single in (True, False):
        rows_ = SingleUnitRows(SIZES)
        for unit in range(len(SIZES)):
            coded: EncodedVector = update(unit) if single else update(unit).astype(np.float64)
            coded[1] += damage * unit
            rows_.add(unit, np.eye(len(SIZES))[unit], coded)
        rows_.precompute()
        found.append(rows_.updates(range(len(SIZES))))
    first, second = found
    assert (first is None) == (second is None) == (damage > 1.0)
    if first is not None and second is not None:
        assert first[0].tobytes() == second[0].tobytes()
        assert first[1] == second[1]


def test_single_precision_of_another_coefficient_than_1_is_not_believed() -> None:
    """Rounded to float32, the product would fit more than one update."""
    rows_, coefficient = SingleUnitRows(SIZES), 1.0 / 3.0
    rows_.add(0, np.array([coefficient, 0.0]), (coefficient * update(0)).astype(np.float32))
    rows_.add(1, np.array([0.0, 1.0]), update(1))
    rows_.precompute()
    assert rows_.updates([0, 1]) is None


def test_rows_that_leave_a_unit_out_give_nothing() -> None:
    rows_ = offered({0: (0, 1.0), 1: (1, 1.0), 2: (1, -2.0)})
    assert rows_.updates([0]) is None
    assert rows_.updates([1, 2]) is None
    assert rows_.updates([0, 2]) is not None


def test_a_row_of_several_units_among_them_gives_nothing() -> None:
    rows_ = offered({0: (0, 1.0), 1: (1, 1.0)})
    rows_.add(2, np.array([1.0, 1.0]), np.zeros(5))
    assert rows_.updates([0, 1, 2]) is None


@pytest.mark.parametrize("damage", [2.0**-20, 2.0**-40, 1e300, -1e60])
def test_a_row_that_contradicts_another_gives_nothing(damage: float) -> None:
    rows_ = offered({0: (0, 1.0), 1: (1, 1.0)})
    wrong = update(0).astype(np.float64)
    wrong[1] += damage
    rows_.add(2, np.array([1.0, 0.0]), wrong)
    rows_.precompute()
    assert rows_.updates([0, 1, 2]) is None
    assert rows_.updates([0, 1]) is not None


@pytest.mark.parametrize("damage", [2.0**-40, 1e300])
def test_what_no_update_gives_spoils_nothing_for_the_next_row_of_its_unit(damage: float) -> None:
    rows_ = SingleUnitRows(SIZES)
    wrong = update(0).astype(np.float64)
    wrong[1] += damage
    for row, coded in enumerate((wrong, update(0).astype(np.float64))):
        rows_.add(row, np.array([1.0, 0.0]), coded)
        rows_.precompute()
    rows_.add(2, np.array([0.0, 1.0]), update(1).astype(np.float64))
    rows_.precompute()
    assert rows_.updates([0, 2]) is None
    found = rows_.updates([1, 2])
    assert found is not None
    assert found[0][0].tobytes() == update(0).tobytes()
