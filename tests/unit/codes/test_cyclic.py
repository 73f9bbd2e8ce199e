"""Cyclic windows: tolerance, load at the floor, shipped tables."""

import math

import numpy as np
import pytest

from fullrank.codes import make_code
from fullrank.codes.conditions import ALL_PATTERNS, count_patterns, loss_patterns, worst_condition
from fullrank.codes.families.cyclic import _tables, harmonic_coefficients, place, windows
from fullrank.common.errors import CodeError


@pytest.mark.parametrize("rows", range(1, 11))
def test_any_tolerated_loss_leaves_full_rank_at_the_least_load(rows: int) -> None:
    for units in range(1, rows + 1):
        for tolerance in range(rows - units + 1):
            code = make_code("cyclic", rows=rows, units=units, tolerance=tolerance)
            assert worst_condition(code.matrix, loss_patterns(rows, tolerance)) < 1e4
            assert int(code.load.sum()) == units * (tolerance + 1)
            assert int(code.load.max()) <= math.ceil(units * (tolerance + 1) / rows)
            assert code.tolerance == tolerance
            assert code.certificate == "exhaustive"


def test_each_unit_sits_on_consecutive_rows() -> None:
    assert windows(15, 8, 2)[:3].tolist() == [[0, 1, 2], [1, 2, 3], [3, 4, 5]]
    assert windows(15, 8, 2)[-1].tolist() == [13, 14, 0]


@pytest.mark.parametrize(
    ("tolerance", "reason"), [(8, r"units \+ tolerance: 15 < 8 \+ 8"), (-1, "tolerance >= 0: -1")]
)
def test_a_tolerance_beyond_the_spare_rows_is_refused(tolerance: int, reason: str) -> None:
    with pytest.raises(CodeError, match=reason):
        make_code("cyclic", rows=15, units=8, tolerance=tolerance)


@pytest.mark.parametrize(
    ("rows", "units", "tolerance", "worst"),
    [
        (15, 8, 1, 2.7),
        (15, 8, 2, 4.2),
        (15, 8, 3, 8.0),
        (15, 8, 7, 1.4e3),
        (15, 10, 5, 560.0),
        (64, 32, 16, 32.0),
    ],
)
def test_shipped_coefficients_are_well_conditioned(
    rows: int, units: int, tolerance: int, worst: float
) -> None:
    code = make_code("cyclic", rows=rows, units=units, tolerance=tolerance)
    patterns = loss_patterns(rows, tolerance, limit=ALL_PATTERNS if rows < 20 else 2000)
    assert worst_condition(code.matrix, patterns) <= worst


def test_every_table_keeps_its_promise_after_any_loss() -> None:
    for (rows, units, tolerance), coefficients in _tables().items():
        if count_patterns(rows, tolerance) <= ALL_PATTERNS:
            patterns = loss_patterns(rows, tolerance)
            assert worst_condition(place(coefficients, rows), patterns) < 1e4
        assert coefficients.shape == (units, tolerance + 1)
        assert coefficients.all(), "a zero coefficient would lower the tolerance"


@pytest.mark.thorough
def test_the_seed_matters_only_where_no_table_is_shipped() -> None:
    def bits(rows: int, units: int, seed: int) -> bytes:
        code = make_code("cyclic", rows=rows, units=units, tolerance=6, seed=seed)
        return code.matrix.tobytes()

    assert (24, 12, 6) in _tables()
    assert (26, 13, 6) not in _tables()
    assert bits(26, 13, 0) == bits(26, 13, 0) != bits(26, 13, 1)
    assert bits(24, 12, 0) == bits(24, 12, 1)


@pytest.mark.parametrize(("rows", "units", "tolerance"), [(9, 5, 2), (9, 4, 3), (10, 6, 3)])
def test_harmonic_columns_are_words_of_one_code(rows: int, units: int, tolerance: int) -> None:
    matrix = place(harmonic_coefficients(rows, units, tolerance, stride=1), rows)
    assert np.linalg.matrix_rank(matrix) == units
    assert worst_condition(matrix, loss_patterns(rows, tolerance)) < 1e4
