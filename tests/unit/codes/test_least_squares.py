"""Theorem 1 and eq. 16 of [DARL1N], and least squares against a dense oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import make_code
from fullrank.codes.analysis import decoded_variances
from fullrank.common.types import Matrix
from fullrank.rounds.decoding import least_squares

UNITS, ROWS, DRAWS = 4, 8, 20_000
CODES = ("cyclic", "mds", "ldgm", "random_sparse", "replication")
SIGMAS = 5.5
"""Tolerance in standard errors. A mean of normal draws exceeds it with probability 4e-8, and so,
nearly, does a variance of so many draws: any of the 80 comparisons fails by chance with probability
below 1e-5."""


def received(name: str, size: int) -> Matrix:
    """Decodable rows, drawn before any noise; rows without a unit are excluded."""
    code, generator = make_code(name, rows=ROWS, units=UNITS), np.random.default_rng(size)
    held = np.flatnonzero(code.load)
    while True:
        rows = code.matrix[np.sort(generator.permutation(held)[:size])]
        if np.isfinite(decoded_variances(rows)).all():
            return np.asarray(rows)


def decoded(rows: Matrix, truth: Matrix, seed: int) -> Matrix:
    """Decoded vectors when every part has independent normal noise; a column for each draw."""
    generator = np.random.default_rng(seed)
    noise = generator.standard_normal((*rows.shape, DRAWS))
    coded = (rows[:, :, None] * (truth[None, :, None] + noise)).sum(axis=1)
    return least_squares(rows, list(coded)).astype(np.float64)


def decoding_matrix(rows: Matrix) -> Matrix:
    return least_squares(rows, list(np.eye(len(rows)))).astype(np.float64)


@given(
    name=st.sampled_from(CODES),
    size=st.integers(UNITS, ROWS),
    columns=st.sampled_from([1, 7, 5000]),
    seed=st.integers(0, 2**32),
)
def test_it_is_the_generalised_least_squares_of_textbooks(
    name: str, size: int, columns: int, seed: int
) -> None:
    rows = received(name, max(size, UNITS + (name != "replication")))
    coded = np.random.default_rng(seed).standard_normal((len(rows), columns))
    weights = np.diag(1.0 / (rows**2).sum(axis=1))
    expected = np.linalg.solve(rows.T @ weights @ rows, rows.T @ weights @ coded)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(least_squares(rows, list(coded)), expected, atol=1e-6 * scale)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("size", [6, 8])
def test_their_variance_is_that_of_eq_16_and_the_predicted_one(name: str, size: int) -> None:
    rows = received(name, size)
    weights = decoding_matrix(rows)
    of_eq_16 = np.diag((weights * (rows**2).sum(axis=1)) @ weights.T)
    np.testing.assert_allclose(decoded_variances(rows), of_eq_16, rtol=1e-5)
    found = decoded(rows, np.zeros(UNITS), seed=100 + size).var(axis=1, ddof=1)
    assert (np.abs(found / of_eq_16 - 1.0) <= SIGMAS * np.sqrt(2.0 / DRAWS)).all()


@pytest.mark.parametrize("name", CODES)
def test_no_unit_is_noisier_than_by_the_ordinary_least_squares_of_the_paper(name: str) -> None:
    rows = received(name, 7)
    ordinary = np.linalg.pinv(rows)
    of_eq_16 = np.diag((ordinary * (rows**2).sum(axis=1)) @ ordinary.T)
    assert (decoded_variances(rows) <= of_eq_16 * (1.0 + 1e-9)).all()
