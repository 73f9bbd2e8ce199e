"""Cyclic windows: tolerance, load at the floor, shipped tables."""

import math

import pytest

from fullrank.codes import make_code
from fullrank.codes.conditions import ALL_PATTERNS, count_patterns, loss_patterns, worst_condition
from fullrank.codes.families.cyclic import _tables, place, windows
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
