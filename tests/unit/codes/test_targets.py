"""Targets T: the sets J that recover T U, and the cases in which sums are exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.codes import Code, Decoder, make_code
from fullrank.codes.analysis import condition_statistics
from fullrank.codes.conditions import conditions, decodable, loss_patterns, measure_tolerance
from fullrank.codes.targets import (
    LIMIT,
    checked_target,
    each_unit,
    largest_sum,
    sum_of_units,
    sums_of_groups,
)
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix
from fullrank.common.updates import GRID

GRADIENT_CODE = np.array(
    [[0.5, 1.0, 0.0], [0.0, 1.0, -1.0], [0.5, 0.0, 1.0]]
)  # [Tandon17], figure 2: any two rows span 1^T, three have rank 2


def draw(units: int, length: int, seed: int) -> Matrix:
    generator = np.random.default_rng(seed)
    updates = np.rint(generator.normal(scale=2.0**32, size=(units, length))) * GRID
    return np.asarray(updates.clip(-LIMIT, LIMIT))


def decoder_of(matrix: Matrix, rows: list[int], updates: Matrix, target: Matrix) -> Decoder:
    decoder = Decoder(matrix, target=target)
    for row in rows:
        decoder.offer(row=row, vector=matrix[row] @ updates)
    return decoder


@settings(deadline=None)
@given(lost=st.integers(0, 2), seed=st.integers(0, 2**31))
def test_rows_that_determine_no_unit_give_the_exact_sum(lost: int, seed: int) -> None:
    updates = draw(3, 50, seed)
    decoder = decoder_of(
        GRADIENT_CODE, [r for r in range(3) if r != lost], updates, sum_of_units(3)
    )
    assert decoder.decodable
    assert not decoder.decodable_units
    assert decoder.decode().tobytes() == (updates.sum(axis=0, keepdims=True) + 0.0).tobytes()
    assert decoder.exact


def test_the_tolerance_is_that_of_the_target() -> None:
    assert measure_tolerance(GRADIENT_CODE, target=sum_of_units(3)) == (1, True)
    code = Code(name="gradient", matrix=GRADIENT_CODE, target=sum_of_units(3))
    assert (code.tolerance, code.certificate) == (1, "exhaustive")
    with pytest.raises(CodeError, match="does not recover each of 3 units; choose"):
        code.recovering(each_unit(3))


@pytest.mark.parametrize(("groups", "size"), [(1, 6), (2, 3), (3, 2), (6, 1)])
def test_conditions_are_finite_where_the_target_decodes(groups: int, size: int) -> None:
    code = make_code("ldgm", rows=10, units=6, seed=2, target=sums_of_groups(groups, size))
    patterns = loss_patterns(10, 3)
    values = conditions(code.matrix, patterns, target=code.target)
    decodes = decodable(code.matrix, patterns, target=code.target)
    assert np.array_equal(np.isfinite(values), decodes)
    assert condition_statistics(code, 0).worst < np.inf


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@given(share=st.floats(0.0, 1.0), seed=st.integers(0, 2**31))
def test_sums_up_to_the_bound_are_exact_and_beyond_it_never_called_so(
    size: int, share: float, seed: int
) -> None:
    """|u| may exceed ``LIMIT`` if the code itself adds nothing up."""
    generator = np.random.default_rng(seed)
    largest = 2.0 * share * largest_sum(GRID) / size
    updates = np.floor(generator.uniform(0.0, largest / GRID, size=(size, 8))) * GRID
    updates[:, 0] = np.floor(largest / GRID) * GRID
    rows = np.eye(size)
    decoder = decoder_of(rows, list(range(size)), updates, sum_of_units(size))
    decoded = decoder.decode()
    wanted = [sum(int(u / GRID) for u in column) for column in updates.T]
    if decoder.exact:
        assert [int(value / GRID) for value in decoded[0]] == wanted
    if size > 1 and updates.sum(axis=0).max() <= largest_sum(GRID) / 2:
        assert decoder.exact
    if max(wanted) > 2**53:
        assert not decoder.exact or size == 1
    error = max(abs(int(v / GRID) - w) for v, w in zip(decoded[0], wanted, strict=True)) * GRID
    assert error <= decoder.error_bound


def test_the_bound_itself_is_exact() -> None:
    half = largest_sum(GRID) / 2.0
    below = np.array([[half], [half - GRID]])
    decoder = decoder_of(np.eye(2), [0, 1], below, sum_of_units(2))
    assert (decoder.decode()[0, 0], decoder.exact) == (2.0 * half - GRID, True)
    above = np.array([[half], [half + GRID]])
    decoder = decoder_of(np.eye(2), [0, 1], above, sum_of_units(2))
    assert abs(decoder.decode()[0, 0] - 2.0 * half) <= decoder.error_bound
    assert not decoder.exact


@pytest.mark.parametrize("apart", [1e-5, 3e-6])
def test_a_sum_that_follows_from_nearly_equal_rows_is_bounded_and_not_called_exact(
    apart: float,
) -> None:
    first = np.array([1.0, 2.0, 3.0])
    rows, updates = np.stack([first, first + apart]), draw(3, 50, seed=0)
    decoder = decoder_of(rows, [0, 1], updates, sum_of_units(3))
    error = np.abs(decoder.decode() - updates.sum(axis=0)).max()
    assert not decoder.exact
    assert 0.0 < error <= decoder.error_bound


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (np.ones(3), r"shape \(K, 3\)"),
        (np.ones((1, 2)), r"shape \(K, 3\)"),
        (np.array([[0.5, 1.0, 1.0]]), "integer entries"),
        (np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]), "not all zero"),
        (np.full((1, 3), 2.0**17), "sums are exact up to 131072"),
    ],
)
def test_an_impossible_target_is_refused(target: Matrix, reason: str) -> None:
    with pytest.raises(CodeError, match=reason):
        checked_target(target, units=3)
