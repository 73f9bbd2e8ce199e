"""Analysis of codes against numbers from the papers and closed forms."""

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import (
    computation_overhead,
    decodable_given_losses,
    decoded_variances,
    least_mean_variance,
    witnesses,
)
from fullrank.codes.conditions import measure_tolerance
from fullrank.codes.decoding.certificate import left_inverse
from fullrank.codes.targets import sum_of_units
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix


@pytest.mark.parametrize(
    ("name", "units", "expected"),
    [
        ("replication", 8, [1, 0.933, 0.800, 0.615, 0.410]),
        ("replication", 10, [1, 0.667, 0.381, 0.176, 0.059, 0.011, 0]),
        ("ldpc", 8, [1, 1, 0.943, 0.829, 0.668]),
        ("ldpc", 10, [1, 1, 0.943, 0.829, 0.624]),
        ("mds", 8, [1] * 8 + [0]),
        ("mds", 10, [1] * 6 + [0]),
        ("uncoded", 8, [1, 7 / 15]),
    ],
)
def test_probability_of_decoding_with_fifteen_learners(
    name: str, units: int, expected: list[float]
) -> None:
    code = make_code(name, rows=15, units=units)
    for losses, wanted in enumerate(expected):
        found = decodable_given_losses(code, losses)
        assert found.value == pytest.approx(wanted, abs=6e-4)
        assert found.standard_error == 0.0


@pytest.mark.parametrize(
    ("name", "rows", "units", "expected"),
    [
        ("uncoded", 15, 8, 0.0),
        ("mds", 24, 12, 23.0),
        ("replication", 24, 12, 1.0),
        ("ldpc", 15, 8, 2.5),
        ("ldpc", 15, 10, 2.4),
    ],
)
def test_computation_overhead(name: str, rows: int, units: int, expected: float) -> None:
    assert computation_overhead(make_code(name, rows=rows, units=units)) == pytest.approx(expected)


def decodable_given_rate(code: Code, rate: float) -> float:
    """P(decodable) when each learner is missing independently of the others."""
    learners = code.learners
    return sum(
        math.comb(learners, k)
        * rate**k
        * (1 - rate) ** (learners - k)
        * decodable_given_losses(code, k).value
        for k in range(learners + 1)
    )


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 1.0])
def test_independent_stragglers_agree_with_the_closed_forms(rate: float) -> None:
    uncoded = make_code("uncoded", rows=10, units=6)
    replicated = make_code("replication", rows=12, units=4)
    mds = make_code("mds", rows=10, units=6)
    survives = sum(math.comb(10, k) * rate**k * (1 - rate) ** (10 - k) for k in range(5))
    assert decodable_given_rate(uncoded, rate) == pytest.approx((1 - rate) ** 6)
    assert decodable_given_rate(replicated, rate) == pytest.approx((1 - rate**3) ** 4)
    assert decodable_given_rate(mds, rate) == pytest.approx(survives)


@st.composite
def received(draw: st.DrawFn) -> Matrix:
    """Decodable rows of some code."""
    name = draw(st.sampled_from(["mds", "random_sparse", "ldgm", "cyclic", "replication"]))
    code = make_code(name, rows=9, units=4, seed=draw(st.integers(0, 20)))
    rows = draw(st.lists(st.integers(0, 8), min_size=4, max_size=9, unique=True))
    unseen = [row for row in range(9) if row not in rows]
    while np.linalg.matrix_rank(code.matrix[rows]) < 4:
        rows.append(unseen.pop(0))
    return code.matrix[rows]


@given(rows=received())
def test_no_code_decodes_with_less_mean_variance_than_units_over_rows(rows: Matrix) -> None:
    silent = int((~rows.any(axis=1)).sum())
    least = least_mean_variance(4, len(rows) - silent)
    assert decoded_variances(rows).mean() >= least * (1 - 1e-9)


@given(rows=received())
def test_generalised_least_squares_never_decodes_with_more_noise_than_least_squares(
    rows: Matrix,
) -> None:
    plain = (left_inverse(rows) ** 2 * (rows**2).sum(axis=1)).sum(axis=1)
    assert (decoded_variances(rows) <= plain * (1 + 1e-9)).all()


def test_units_have_no_finite_variance_where_the_rows_do_not_decode() -> None:
    code = make_code("replication", rows=6, units=3)
    stack = code.matrix[np.array([[0, 1, 2], [0, 3, 1]])]
    assert np.isfinite(decoded_variances(stack)).tolist() == [[True] * 3, [False] * 3]
    assert not np.isfinite(decoded_variances(code.matrix[:2])).any()


def test_measured_tolerance_agrees_with_the_closed_forms() -> None:
    for name, rows, units in [("mds", 9, 5), ("replication", 9, 4), ("uncoded", 6, 4)]:
        code = make_code(name, rows=rows, units=units)
        assert measure_tolerance(code.matrix) == (code.tolerance, True)
    grouped = make_code("fractional", rows=9, units=4, tolerance=2)
    assert measure_tolerance(grouped.matrix, target=sum_of_units(4)) == (2, True)


def test_impossible_numbers_of_losses_are_refused() -> None:
    code = make_code("mds", rows=4, units=3)
    with pytest.raises(CodeError, match=r"0..4"):
        decodable_given_losses(code, 5)


@pytest.mark.parametrize(("rows", "units"), [(4, 3), (5, 3), (7, 3), (15, 8)])
def test_as_many_learners_compute_each_unit_as_the_threat_model_says(rows: int, units: int) -> None:
    """docs/security.md, learners that lie."""
    holders: dict[str, int] = {}
    for name in codes:
        with suppress(CodeError):
            code = make_code(name, rows=rows, units=units, seed=0)
            holders[name] = witnesses(code)
            assert holders[name] > code.tolerance or not code.recovers_units
    stated = {"uncoded": 1, "replication": rows // units, "vandermonde": rows, "fractional": 2}
    assert holders.items() >= stated.items()
    assert holders["mds"] >= rows - units + 1
    for tolerance in (1, 2):
        with suppress(CodeError):
            code = make_code("cyclic", rows=rows, units=units, tolerance=tolerance)
            assert witnesses(code) == tolerance + 1
