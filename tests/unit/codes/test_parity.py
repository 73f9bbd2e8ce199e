"""Parity checks detect and locate errors as far as ranks allow."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import make_code
from fullrank.codes.decoding.certificate import FLOAT64, Parity, culprit
from fullrank.common.types import Matrix

CODES = ["mds", "cyclic", "random_sparse", "ldgm", "replication", "uncoded"]


def rows_of(code: str, units: int, received: set[int]) -> Matrix:
    """C_J of a code with eight rows."""
    matrix = make_code(code, rows=8, units=units, seed=1).matrix
    return np.asarray(matrix[sorted(received)])


def rank_without(rows: Matrix, *left_out: int) -> int:
    return int(np.linalg.matrix_rank(np.delete(rows, left_out, axis=0)))


submatrices = st.builds(
    rows_of, st.sampled_from(CODES), st.integers(2, 5), st.sets(st.integers(0, 7), min_size=2)
).filter(lambda rows: len(rows) and np.linalg.matrix_rank(rows) == rows.shape[1])


@given(rows=submatrices)
def test_auditable_are_rows_without_which_the_rank_is_full(rows: Matrix) -> None:
    expected = [rank_without(rows, j) == rows.shape[1] for j in range(len(rows))]
    assert Parity(rows).auditable.tolist() == expected


@given(rows=submatrices)
def test_nameable_are_rows_without_which_and_any_other_that_shows_the_rank_is_full(
    rows: Matrix,
) -> None:
    units = rows.shape[1]
    shows = [rank_without(rows, j) == units for j in range(len(rows))]
    expected = [
        shows[j]
        and all(rank_without(rows, j, k) == units for k in range(len(rows)) if k != j and shows[k])
        for j in range(len(rows))
    ]
    assert Parity(rows).nameable.tolist() == expected


def vectors(rows: Matrix, seed: int) -> Matrix:
    generator = np.random.default_rng(seed)
    return np.asarray(rows @ generator.uniform(-0.5, 0.5, (rows.shape[1], 9)))


@given(rows=submatrices, seed=st.integers(0, 99), wrong=st.integers(0, 7), entry=st.integers(0, 8))
def test_a_wrong_vector_shows_if_it_can_and_names_its_row_or_nobody(
    rows: Matrix, seed: int, wrong: int, entry: int
) -> None:
    wrong %= len(rows)
    parity, coded = Parity(rows), vectors(rows, seed)
    assert parity.residual(coded) <= FLOAT64
    assert culprit(rows, coded, threshold=FLOAT64) is None
    coded[wrong, entry] += 1e-3 * np.abs(coded).max()
    assert (parity.residual(coded) > FLOAT64) == parity.auditable[wrong]
    named = culprit(rows, coded, threshold=FLOAT64)
    assert named == (wrong if parity.nameable[wrong] else None)


def test_residuals_do_not_grow_with_the_condition() -> None:
    with pytest.warns(UserWarning, match="ill conditioned"):
        code = make_code("vandermonde", rows=15, units=8)
    assert np.linalg.cond(code.matrix) > 1e6
    assert Parity(code.matrix).residual(vectors(code.matrix, 0)) < FLOAT64


def test_a_threshold_calibrated_on_clean_rounds_gives_no_false_alarm() -> None:
    """Learners with different arithmetic: vectors that agree to float32 only."""
    rows, generator = rows_of("mds", 4, set(range(7))), np.random.default_rng(0)

    def round_(seed: int) -> Matrix:
        coded = vectors(rows, seed)
        return np.asarray(coded * (1.0 + 6e-8 * generator.standard_normal(coded.shape)))

    parity = Parity(rows)
    threshold = 10 * max(parity.residual(round_(seed)) for seed in range(20))
    assert FLOAT64 < threshold < 1e-5
    clean = [parity.residual(round_(seed)) for seed in range(20, 1020)]
    assert max(clean) <= threshold
    for wrong, seed in combinations(range(7), 2):
        coded = round_(seed)
        coded[wrong] *= 1.001
        assert culprit(rows, coded, threshold=threshold) == wrong
