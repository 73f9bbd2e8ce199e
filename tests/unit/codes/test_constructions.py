"""Golden small matrices and refusals of each construction; the tolerance of cyclic codes."""

import copy
import math
import pickle

import numpy as np
import pytest

from fullrank.codes import make_code
from fullrank.codes.base import is_lone_unit
from fullrank.codes.conditions import ALL_PATTERNS, count_patterns, loss_patterns, worst_condition
from fullrank.codes.decoding.certificate import quantum
from fullrank.codes.families.cyclic import _tables, place, windows
from fullrank.codes.families.ldpc import sizes
from fullrank.codes.targets import LIMIT
from fullrank.common.errors import CodeError
from fullrank.common.updates import GRID


@pytest.mark.parametrize(
    ("rows", "units", "copies", "tolerance"),
    [(15, 8, [2] * 7 + [1], 0), (15, 10, [2] * 5 + [1] * 5, 0), (9, 4, [3, 2, 2, 2], 1)],
)
def test_replication_assigns_round_robin(
    rows: int, units: int, copies: list[int], tolerance: int
) -> None:
    code = make_code("replication", rows=rows, units=units)
    assert code.matrix.sum(axis=0).tolist() == copies
    assert all(code.matrix[j, j % units] == 1.0 for j in range(rows))
    assert code.tolerance == tolerance


def test_vandermonde_with_the_authors_nodes_ends_in_ones() -> None:
    with pytest.warns(UserWarning, match="ill conditioned"):
        code = make_code("vandermonde", rows=15, units=8)
    assert code.matrix[-1].tolist() == [1.0] * 8
    np.testing.assert_allclose(code.matrix[-2], np.linspace(0.1, 0.5, 8))
    np.testing.assert_allclose(code.matrix[0], np.linspace(0.1, 0.5, 8) ** 14)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ((1.0,), "one node per unit: 1 != 2"),
        ((1.0, 1.0), "distinct positive nodes"),
        ((-1.0, 1.0), "distinct positive nodes"),
    ],
)
def test_vandermonde_refuses_nodes_that_may_collide(nodes: tuple[float, ...], reason: str) -> None:
    with pytest.raises(CodeError, match=reason):
        make_code("vandermonde", rows=4, units=2, nodes=nodes)


@pytest.mark.parametrize("rows", range(1, 17))
def test_any_m_rows_of_every_harmonic_code_are_independent(rows: int) -> None:
    for units in range(1, rows + 1):
        matrix = make_code("mds", rows=rows, units=units).matrix
        assert worst_condition(matrix, loss_patterns(rows, rows - units)) < 1100.0


def test_random_sparse_says_when_the_density_is_too_low() -> None:
    with pytest.raises(CodeError, match="raise the density"):
        make_code("random_sparse", rows=10, units=10, density=0.01)
    with pytest.raises(CodeError, match=r"0 < density <= 1: 1.5"):
        make_code("random_sparse", rows=4, units=3, density=1.5)


def test_ldgm_is_systematic_with_bernoulli_parity() -> None:
    matrix = make_code("ldgm", rows=120, units=60, density=0.3).matrix
    assert np.array_equal(matrix[:60], np.eye(60))
    assert set(np.unique(matrix)) == {0.0, 1.0}
    assert matrix[60:].mean() == pytest.approx(0.3, abs=0.03)
    with pytest.raises(CodeError, match="0 <= density <= 1"):
        make_code("ldgm", rows=4, units=3, density=-0.1)


def test_ldpc_sizes_are_those_that_the_construction_allows() -> None:
    assert {(w, gamma): m for m, w, gamma in sizes(15)} == {
        (3, 1): 12, (3, 2): 10, (3, 3): 8, (5, 1): 10, (5, 2): 6, (5, 3): 2,
    }  # fmt: skip
    assert [m for m, w, _ in sizes(24) if w == 2] == [22, 21]
    assert [m for m, w, _ in sizes(24) if w == 3] == [21, 19, 17]
    assert all(m != 12 for m, _, _ in sizes(24))


def test_ldpc_lists_the_sizes_when_none_fits() -> None:
    with pytest.raises(CodeError, match=r"units = 9; for 15 rows there are \(M=12, w=3, gamma=1\)"):
        make_code("ldpc", rows=15, units=9)
    with pytest.raises(CodeError, match="units = 8, w = 5; for 15 rows"):
        make_code("ldpc", rows=15, units=8, w=5)
    with pytest.raises(CodeError, match="none for 13 rows"):
        make_code("ldpc", rows=13, units=8)


@pytest.mark.parametrize(
    ("rows", "units", "tolerance", "known"),
    [(9, 5, 2, 2), (8, 3, 2, 3), (5, 7, 4, 4), (7, 2, 2, 2)],
)
def test_fractional_groups_are_full_and_cover_every_unit_once(
    rows: int, units: int, tolerance: int, known: int
) -> None:
    code = make_code("fractional", rows=rows, units=units, tolerance=tolerance)
    groups = np.unique(code.matrix, axis=0)
    assert groups.sum(axis=0).tolist() == [1.0] * units
    sizes = [int((code.matrix == group).all(axis=1).sum()) for group in groups]
    assert min(sizes) == known + 1 == code.tolerance + 1
    assert known >= tolerance


@pytest.mark.parametrize("name", ["mds", "random_sparse", "cyclic"])
@pytest.mark.parametrize(("rows", "units"), [(4, 3), (15, 8), (64, 32)])
def test_real_coefficients_encode_clipped_updates_without_rounding(
    name: str, rows: int, units: int
) -> None:
    matrix = make_code(name, rows=rows, units=units).matrix
    heaviest = np.abs(matrix).sum(axis=1).max() * LIMIT
    assert heaviest <= 2.0**52 * quantum(matrix) * GRID


def test_a_code_remembers_how_its_tolerance_is_known_when_copied() -> None:
    code = make_code("mds", rows=15, units=8)
    for copied in (copy.deepcopy(code), pickle.loads(pickle.dumps(code))):
        assert (copied.tolerance, copied.certificate) == (7, "exhaustive")


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
    ("rows", "units", "tolerance"), [(4, 3, 1), (15, 8, 1), (9, 7, 1), (16, 9, 2)]
)
def test_a_unit_alone_in_a_row_of_cyclic_has_the_coefficient_1(
    rows: int, units: int, tolerance: int
) -> None:
    matrix = make_code("cyclic", rows=rows, units=units, tolerance=tolerance).matrix
    alone = np.count_nonzero(matrix, axis=1) == 1
    assert alone.any()
    assert is_lone_unit(matrix)[alone].all()


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
