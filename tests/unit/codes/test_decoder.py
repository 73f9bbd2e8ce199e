"""Decoding: rank, order, attempts, idempotence, the sum, refusals."""

import ctypes.util
import platform

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.codes import Code, Decoder, make_code
from fullrank.codes.decoding.decoder import BLOCK_COLUMNS, Peeling
from fullrank.codes.decoding.rows import RowSpace
from fullrank.common.errors import CodeError, InvalidContribution, NotDecodable
from fullrank.common.types import Matrix
from fullrank.common.updates import snap

CODES = [
    make_code("cyclic", rows=15, units=8, tolerance=7),
    make_code("cyclic", rows=15, units=8, tolerance=3),
    make_code("mds", rows=15, units=10),
    make_code("random_sparse", rows=12, units=6, seed=3),
    make_code("ldpc", rows=15, units=8),
    make_code("ldgm", rows=20, units=8, seed=1),
    make_code("replication", rows=12, units=4),
    make_code("fractional", rows=9, units=5, tolerance=2),
]


def updates_like_gradients(units: int, length: int, seed: int) -> Matrix:
    """Five decades of scales, clipped, a fifth zero, on the grid."""
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.uniform(-6, -1, (units, 1))
    updates = (generator.standard_normal((units, length)) * scale).clip(-0.5, 0.5)
    updates[generator.random(updates.shape) < 0.2] = 0.0
    return snap(updates.astype(np.float32)).astype(np.float64)


def target_of(code: Code, updates: Matrix) -> Matrix:
    return np.asarray(code.target @ updates)


@settings(deadline=None, max_examples=120)
@given(
    code=st.sampled_from(CODES),
    order=st.permutations(range(20)),
    seed=st.integers(0, 2**31),
    extra=st.integers(0, 3),
)
def test_any_decodable_rows_in_any_order_give_the_true_bits(
    code: Code, order: list[int], seed: int, extra: int
) -> None:
    updates = updates_like_gradients(code.units, 60, seed)
    decoder = Decoder(code)
    for row in (row for row in order if row < code.rows):
        extra -= decoder.decodable
        if extra < 0:
            break
        decoder.offer(row=row, vector=code.matrix[row] @ updates)
        decoder.offer(row=row, vector=np.full(60, 9.0))  # a repeat changes nothing
    assert decoder.decodable
    decoded = decoder.decode()
    assert decoder.exact
    assert decoder.error_bound == 0.0
    assert decoded.tobytes() == (target_of(code, updates) + 0.0).tobytes()


@settings(deadline=None, max_examples=80)
@given(code=st.sampled_from(CODES[:-1]), order=st.permutations(range(20)))
def test_rank_and_decodable_units_agree_with_linear_algebra_after_every_row(
    code: Code, order: list[int]
) -> None:
    decoder = Decoder(code)
    received: list[int] = []
    for row in (row for row in order if row < code.rows):
        decoder.offer(row=row)
        received.append(row)
        submatrix = code.matrix[received]
        rank = np.linalg.matrix_rank(submatrix)
        known = {
            unit
            for unit in range(code.units)
            if np.linalg.matrix_rank(np.vstack([submatrix, np.eye(code.units)[unit]])) == rank
        }
        assert decoder.rank == rank
        assert decoder.decodable == (rank == code.units)
        assert decoder.decodable_units == known
        assert decoder.received == tuple(sorted(received))


@pytest.mark.parametrize("block", [0, 1])
def test_one_block_that_is_not_exact_takes_the_proof_from_all(block: int) -> None:
    code = CODES[2]
    updates = updates_like_gradients(code.units, 2 * BLOCK_COLUMNS, seed=5)
    updates[:, block * BLOCK_COLUMNS] *= 2.0**40
    decoder = Decoder(code)
    for row in range(code.rows):
        decoder.offer(row=row, vector=code.matrix[row] @ updates)
    decoder.decode()
    assert not decoder.exact
    assert decoder.error_bound > 0.0


@pytest.mark.parametrize("code", [CODES[5], CODES[6]])
def test_rows_of_one_unit_in_single_precision_decode_to_the_same_bits(code: Code) -> None:
    updates = updates_like_gradients(code.units, 2 * BLOCK_COLUMNS + 7, seed=1)
    decoder = Decoder(code)
    alone = (code.matrix == 1.0).sum(axis=1) == 1
    alone &= (code.matrix != 0.0).sum(axis=1) == 1
    assert alone.any()
    for row in range(code.rows):
        vector = code.matrix[row] @ updates
        decoder.offer(row=row, vector=vector.astype(np.float32) if alone[row] else vector)
    assert decoder.decode().tobytes() == updates.tobytes()
    assert decoder.exact


def test_rows_of_another_attempt_bring_their_own_coefficients() -> None:
    code = make_code("cyclic", rows=4, units=3)
    updates = updates_like_gradients(3, 50, seed=1)
    added = np.array([0.5, 0.25, -1.0])
    decoder = Decoder(code)
    decoder.offer(row=0, vector=code.matrix[0] @ updates)
    decoder.offer(row=1, vector=code.matrix[1] @ updates)
    assert decoder.offer(row=100, vector=added @ updates, coefficients=added)
    assert decoder.received == (0, 1, 100)
    assert np.array_equal(decoder.decode(), updates)


def test_decoding_too_early_says_the_rank() -> None:
    decoder = Decoder(make_code("mds", rows=4, units=3))
    decoder.offer(row=2, vector=np.zeros(5))
    with pytest.raises(
        NotDecodable, match=r"rows \[2\] of rank 1 do not determine each of 3 units; wait"
    ):
        decoder.decode()


@pytest.mark.parametrize(
    ("row", "vector", "coefficients", "reason"),
    [
        (4, np.zeros(5), None, r"row 4 is outside 0\.\.3"),
        (-1, np.zeros(5), None, r"row -1 is outside 0\.\.3"),
        (1, np.zeros(4), None, r"row 1 has shape \(4,\); expected \(5,\)"),
        (1, np.zeros((5, 1)), None, r"shape \(5, 1\)"),
        (1, np.array([0, 0, np.nan, 0, 0]), None, "not finite"),
        (1, np.array([0, 0, np.inf, 0, 0]), None, "not finite"),
        (9, np.zeros(5), np.zeros(2), r"coefficients of shape \(2,\), not \(3,\)"),
    ],
)
def test_an_invalid_row_is_refused_and_may_be_offered_again(
    row: int, vector: Matrix, coefficients: Matrix | None, reason: str
) -> None:
    decoder = Decoder(make_code("mds", rows=4, units=3))
    decoder.offer(row=0, vector=np.zeros(5))
    with pytest.raises(InvalidContribution, match=reason):
        decoder.offer(row=row, vector=vector, coefficients=coefficients)
    assert decoder.received == (0,)
    assert decoder.offer(row=1, vector=np.zeros(5))


@pytest.mark.parametrize("grid", [0.0, -1.0, 3.0, 1e-10])
def test_a_grid_that_is_no_power_of_two_is_refused(grid: float) -> None:
    with pytest.raises(CodeError, match="power of two"):
        Decoder(np.eye(2), grid=grid)


@given(
    rows=st.lists(st.sets(st.integers(0, 6), min_size=1), max_size=12),
)
def test_peeled_units_are_in_the_row_space(rows: list[set[int]]) -> None:
    peeling, space = Peeling(7), RowSpace(7)
    for support in rows:
        peeling.add(support)
        space.add(np.isin(np.arange(7), list(support)).astype(np.float64))
    assert all(space.contains(np.eye(7)[unit]) for unit in peeling.resolved)
    assert len(peeling.resolved) <= space.rank


def test_another_rounding_mode_is_refused_by_name() -> None:
    upward = 0x800
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    if platform.machine() != "x86_64" or library.fesetround(upward):
        pytest.skip("this processor names its rounding modes otherwise")
    try:
        with pytest.raises(CodeError, match="does not round to the nearest number"):
            Decoder(CODES[0])
    finally:
        library.fesetround(0)
    Decoder(CODES[0])
