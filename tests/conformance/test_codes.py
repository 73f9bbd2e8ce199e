"""Laws that every registered code keeps."""

import itertools
import warnings
from collections.abc import Iterable

import numpy as np
import pytest
from tests.registries import shipped

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank.codes.conditions import decodable, loss_patterns
from fullrank.codes.decoding.decoder import Decoder
from fullrank.codes.targets import each_unit, sum_of_units, sums_of_groups
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix

SIZES = [(1, 1), (4, 3), (9, 9), (10, 5), (15, 8), (24, 12)]
WANTED = ("own", "units", "sum", "groups")


def built(name: str, rows: int, units: int, seed: int = 0) -> Code | None:
    """A code; None if it does not exist for these sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return make_code(name, rows=rows, units=units, seed=seed)
        except CodeError:
            return None


BUILT = {
    (name, rows, units): code
    for name, (rows, units) in itertools.product(shipped(codes), SIZES)
    if (code := built(name, rows, units)) is not None
}


def of(sizes: Iterable[tuple[str, int, int]]) -> pytest.MarkDecorator:
    """The cases of a law."""
    return pytest.mark.parametrize(("name", "rows", "units"), list(sizes))


def target_of(code: Code, wanted: str) -> Matrix:
    """A target for the code's units."""
    units = code.units
    size = next(size for size in (3, 2, 5, units) if units % size == 0)
    targets = {
        "own": code.target,
        "units": each_unit(units),
        "sum": sum_of_units(units),
        "groups": sums_of_groups(units // size, size),
    }
    return targets[wanted]


def spans(code: Code, wanted: str) -> bool:
    """True of codes of full rank; rows of ``fractional`` span sums over whole groups alone."""
    if code.name != "fractional":
        return True
    try:
        code.recovering(target_of(code, wanted))
    except CodeError:
        return False
    return True


@pytest.mark.parametrize("name", shipped(codes))
def test_every_code_exists_for_some_size(name: str) -> None:
    assert any(each == name for each, _, _ in BUILT)


@of(BUILT)
def test_a_code_is_what_was_asked_for_and_all_its_rows_decode(
    name: str, rows: int, units: int
) -> None:
    code = BUILT[name, rows, units]
    assert code.name == name
    assert code.matrix.shape == (rows, units)
    assert code.matrix.dtype == np.float64
    assert np.isfinite(code.matrix).all()
    assert not np.signbit(code.matrix[code.matrix == 0.0]).any()
    assert code.load.tolist() == [sum(c != 0.0 for c in row) for row in code.matrix]
    assert code.redundancy == rows / units
    assert not code.matrix.flags.writeable
    assert not code.load.flags.writeable
    decoder = Decoder(code)
    for row in range(rows):
        decoder.offer(row=row)
    assert decoder.decodable
    if code.recovers_units:
        assert np.linalg.matrix_rank(code.matrix) == units
    first, second = (built(name, rows, units, seed=7) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.matrix.tobytes() == second.matrix.tobytes()


@of(size for size in BUILT if size[0] != "vandermonde" or size[2] < 9)  # beyond: no rank in float64
def test_any_tolerated_loss_decodes(name: str, rows: int, units: int) -> None:
    code = BUILT[name, rows, units]
    patterns = loss_patterns(rows, code.tolerance, limit=2000)
    assert decodable(code.matrix, patterns, target=code.target).all()


@of(size for size, code in BUILT.items() if code.certificate != "generic" and code.rows <= 15)
def test_one_loss_more_than_tolerated_may_not_decode(name: str, rows: int, units: int) -> None:
    """All patterns of losses are tried."""
    code = BUILT[name, rows, units]
    assert decodable_given_losses(code, code.tolerance + 1).value < 1.0


CERTIFIED = [  # vandermonde: the certificate refuses it (tests/unit/codes/test_certificate.py)
    pytest.param(*size, wanted)
    for (size, code), wanted in itertools.product(BUILT.items(), WANTED)
    if size[0] != "vandermonde" and spans(code, wanted)
]


@pytest.mark.parametrize(("name", "rows", "units", "wanted"), CERTIFIED)
def test_decoding_any_decodable_set_gives_the_bits_of_the_target(
    name: str, rows: int, units: int, wanted: str
) -> None:
    code = BUILT[name, rows, units]
    code = code.recovering(target_of(code, wanted))
    generator = np.random.default_rng(rows * units)
    updates = np.rint(generator.normal(scale=2.0**32, size=(units, 40))) * 2.0**-36
    updates = updates.clip(-0.5, 0.5)
    for _ in range(20):
        decoder = Decoder(code)
        for row in generator.permutation(rows):
            decoder.offer(row=int(row), vector=code.matrix[row] @ updates)
            if decoder.decodable:
                break
        assert decoder.decode().tobytes() == (code.target @ updates + 0.0).tobytes()
        assert decoder.exact


@pytest.mark.parametrize("name", [n for n in shipped(codes) if n != "fractional"])
def test_too_few_rows_are_refused_with_the_inequality(name: str) -> None:
    with pytest.raises(CodeError, match=rf"{name} needs rows >= units( \+ tolerance)?: 5 < 8"):
        make_code(name, rows=5, units=8)


@pytest.mark.parametrize("name", shipped(codes))
def test_no_rows_or_units_are_refused(name: str) -> None:
    with pytest.raises(CodeError, match="needs rows >= 1 and units >= 1"):
        make_code(name, rows=3, units=0)


@pytest.mark.parametrize("name", ["mds", "random_sparse", "ldgm"])
def test_another_seed_gives_another_random_code(name: str) -> None:
    first, second = (make_code(name, rows=24, units=12, seed=s).matrix for s in (0, 1))
    assert not np.array_equal(first, second)
