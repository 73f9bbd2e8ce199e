"""Laws of codes for any number of learners: what is lost is a learner with all its rows."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.registries import shipped

from fullrank.codes import Code, codes, make_code
from fullrank.codes.conditions import ALL_PATTERNS, decodable, loss_patterns, rows_held
from fullrank.codes.learner_codes import code_for_learners, tolerance_asked_of
from fullrank.codes.targets import each_unit, sum_of_units, sums_of_groups
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix

UNITS = 6
TARGETS = {
    "units": each_unit(UNITS),
    "sum": sum_of_units(UNITS),
    "sums": sums_of_groups(3, 2),
}
MOST_LEARNERS = 8


def assigned(name: str, learners: int, target: Matrix, **params: int) -> Code:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        family = codes.build(name, **params)
        return code_for_learners(family, learners=learners, units=target.shape[1], target=target)


def survivors(code: Code, losses: int) -> np.ndarray:
    kept = loss_patterns(code.learners, losses, limit=ALL_PATTERNS)
    return decodable(code.matrix, rows_held(kept, code.rows_per_learner), target=code.target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", shipped(codes))
def test_any_number_of_learners_survives_its_tolerance_and_no_more(name: str, target: str) -> None:
    asked = tolerance_asked_of(codes.build(name))
    for learners in range(asked + 1, MOST_LEARNERS + 1):
        code = assigned(name, learners, TARGETS[target])
        assert (code.learners, code.units) == (learners, UNITS)
        np.testing.assert_array_equal(code.target, TARGETS[target])
        assert code.tolerance >= asked
        assert survivors(code, code.tolerance).all()
        if code.tolerance + 1 < learners:
            assert not survivors(code, code.tolerance + 1).all()


@pytest.mark.parametrize("name", shipped(codes))
def test_with_a_row_for_each_learner_the_code_is_the_family_s_own(name: str) -> None:
    for learners in range(UNITS, 16):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                own = make_code(name, rows=learners, units=UNITS, target=each_unit(UNITS))
        except CodeError:
            continue
        code = assigned(name, learners, each_unit(UNITS))
        np.testing.assert_array_equal(code.matrix, own.matrix)
        assert (code.rows_per_learner, code.tolerance) == (1, own.tolerance)


@settings(max_examples=25, deadline=None)
@given(
    losses=st.integers(0, 3), more=st.integers(1, 12), units=st.integers(1, 12), sums=st.booleans()
)
def test_a_tolerance_asked_for_costs_the_fewest_rows(
    losses: int, more: int, units: int, sums: bool
) -> None:
    learners = losses + more
    target = sum_of_units(units) if sums else each_unit(units)
    code = assigned("cyclic", learners, target, tolerance=losses)
    assert code.tolerance >= losses
    if sums:
        assert code.rows_per_learner == 1
        return
    assert code.rows_per_learner == max(1, -(-units // more)), "N - s learners send M vectors"
    computed = code.load.sum()
    assert computed == units * (losses + 1), "each unit is computed s + 1 times"


def test_the_load_of_few_learners_is_even() -> None:
    for learners, units in ((3, 8), (4, 9), (5, 32)):
        for losses in (0, 1):
            load = assigned("cyclic", learners, each_unit(units), tolerance=losses).load
            assert load.max() - load.min() <= 2, (learners, units, load)
