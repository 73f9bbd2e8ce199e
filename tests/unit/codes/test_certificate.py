"""The certificate never calls a wrong result exact, nor an honest vector corrupt."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.codes import Code, Decoder, make_code
from fullrank.codes.decoding.certificate import UnitsSolver, quantum
from fullrank.common.errors import Corrupted
from fullrank.common.types import Matrix, Vector
from fullrank.common.updates import GRID, snap


def vandermonde(rows: int, units: int) -> Code:
    with pytest.warns(UserWarning, match="prefer mds or cyclic"):
        return make_code("vandermonde", rows=rows, units=units)


def gradients(units: int, length: int, seed: int, largest: float = 0.5) -> Matrix:
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.uniform(-6, 0, (units, 1)) * largest
    updates = (generator.standard_normal((units, length)) * scale).clip(-largest, largest)
    return snap(updates.astype(np.float32)).astype(np.float64)


def encode(row: Vector, updates: Matrix, generator: np.random.Generator) -> Vector:
    """The row's sum in a random order, as a learner might add it up."""
    total = np.zeros(updates.shape[1])
    for unit in generator.permutation(len(row)):
        total += row[unit] * updates[unit]
    return total


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**31),
    units=st.integers(1, 9),
    spare=st.integers(0, 2),
    decades=st.floats(0, 7),
    largest=st.sampled_from([2.0**-30, 0.5, 2.0**6]),
)
def test_honest_vectors_are_never_corrupt_and_exact_means_equal(
    seed: int, units: int, spare: int, decades: float, largest: float
) -> None:
    """For arbitrary real coefficients, well and badly conditioned, small and large updates."""
    generator = np.random.default_rng(seed)
    left = np.linalg.qr(generator.standard_normal((units + spare, units)))[0]
    right = np.linalg.qr(generator.standard_normal((units, units)))[0]
    matrix = left * np.logspace(0, -decades, units) @ right
    updates = gradients(units, 30, seed, largest)
    decoder = Decoder(matrix)
    for row in range(units + spare):
        decoder.offer(row=row, vector=encode(matrix[row], updates, generator))
    decoded = decoder.decode()
    assert np.abs(decoded - updates).max() <= decoder.error_bound
    if decoder.exact:
        assert np.array_equal(decoded, updates)


@pytest.mark.parametrize(("rows", "units"), [(15, 8), (15, 10)])
def test_vandermonde_decodes_wrongly_and_is_refused(rows: int, units: int) -> None:
    code = vandermonde(rows, units)
    updates = gradients(units, 200, seed=3)
    generator = np.random.default_rng(0)
    refused = wrong = 0
    for _ in range(50):
        decoder = Decoder(code)
        for row in generator.permutation(rows)[:units]:
            decoder.offer(row=int(row), vector=encode(code.matrix[row], updates, generator))
        if not decoder.decodable:
            refused += 1
            continue
        error = np.abs(decoder.decode() - updates).max()
        assert error <= decoder.error_bound
        assert not (decoder.exact and error)
        refused += not decoder.exact
        wrong += error > 1e-8
    assert refused == 50
    assert wrong > 0


@pytest.mark.parametrize(("name", "rows", "units"), [("mds", 64, 32), ("cyclic", 24, 12)])
def test_exact_encoding_certifies_where_rounded_encoding_could_not(
    name: str, rows: int, units: int
) -> None:
    """Rows so close to dependent that M 2^-52 |D||C||U| exceeds the grid still decode exactly."""
    tolerance: dict[str, Any] = {"tolerance": rows - units} if name == "cyclic" else {}
    code = make_code(name, rows=rows, units=units, **tolerance)
    generator = np.random.default_rng(2)
    sets = [np.sort(generator.permutation(rows)[:units]) for _ in range(400)]
    hardest = max(sets, key=lambda received: np.linalg.cond(code.matrix[received]))
    updates = gradients(units, 200, seed=1)
    decoder = Decoder(code)
    for row in hardest:
        decoder.offer(row=int(row), vector=encode(code.matrix[row], updates, generator))
    assert decoder.condition > 1e3
    assert np.array_equal(decoder.decode(), updates)
    assert decoder.exact


@pytest.mark.parametrize(("largest", "exact"), [(2.0**8, True), (2.0**18, False)])
def test_updates_too_large_to_encode_exactly_fall_back_on_the_rounding_bounds(
    largest: float, exact: bool
) -> None:
    code = make_code("mds", rows=15, units=8)
    generator = np.random.default_rng(4)
    updates = gradients(8, 100, seed=2, largest=largest)
    coded = np.stack([encode(row, updates, generator) for row in code.matrix])
    again = np.stack([encode(row, updates, generator) for row in code.matrix])
    assert (coded != again).any(), "the order of summation must matter here"
    decoder = Decoder(code)
    for row in range(15):
        decoder.offer(row=row, vector=coded[row])
    decoded = decoder.decode()
    assert decoder.exact == exact
    assert np.abs(decoded - updates).max() <= decoder.error_bound < 1e-8


def test_what_encoding_has_rounded_away_is_not_called_exact() -> None:
    """Another second update has the same vectors in float64, and they may decode to that one."""
    matrix, updates = np.array([[3.0, 1.0], [4.0, -1.0]]), np.array([[3 * 2.0**16], [GRID]])
    decoder = Decoder(matrix)
    for row in range(2):
        decoder.offer(row=row, vector=matrix[row] @ updates)
    decoded = decoder.decode()
    assert not decoder.exact
    assert np.abs(decoded - updates).max() <= decoder.error_bound


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(["mds", "cyclic"]),
    seed=st.integers(0, 2**31),
    row=st.integers(0, 14),
    size=st.sampled_from([1e-6, 1e-3, 1.0, 1e6]),
)
def test_a_changed_entry_among_spare_rows_is_corruption(
    name: str, seed: int, row: int, size: float
) -> None:
    code = make_code(name, rows=15, units=8)
    updates = gradients(8, 20, seed)
    coded = code.matrix @ updates
    coded[row, seed % 20] += size
    decoder = Decoder(code)
    for index in range(15):
        decoder.offer(row=index, vector=coded[index])
    with pytest.raises(Corrupted, match="leave rows out in turn"):
        decoder.decode()


def test_leaving_the_corrupt_row_out_decodes() -> None:
    code = make_code("cyclic", rows=15, units=8, tolerance=3)
    updates = gradients(8, 20, seed=0)
    coded = code.matrix @ updates
    coded[5] = -coded[5]
    culprits = []
    for left_out in range(15):
        decoder = Decoder(code)
        for row in set(range(15)) - {left_out}:
            decoder.offer(row=row, vector=coded[row])
        try:
            assert np.array_equal(decoder.decode(), updates)
            culprits.append(left_out)
        except Corrupted:
            pass
    assert culprits == [5]


def test_rows_that_are_singular_in_float64_promise_nothing() -> None:
    solver = UnitsSolver(np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-52]]), GRID)
    block = solver.solve(np.array([[1.0], [1.0]]))
    assert not block.exact
    assert block.error_bound == np.inf


@given(st.lists(st.integers(-(2**20), 2**20).filter(bool), min_size=1), st.integers(-40, 40))
def test_quantum_divides_every_coefficient_and_is_the_largest(
    integers: list[int], exponent: int
) -> None:
    matrix = np.ldexp(np.array([integers], dtype=np.float64), exponent)
    found = quantum(matrix)
    shares = matrix / found
    assert np.array_equal(shares, np.rint(shares))
    assert (shares % 2 == 1).any()
