"""Rounds whose learners draw samples of their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import make_code, support
from fullrank.codes.analysis import decoded_variances
from fullrank.common.types import Vector
from fullrank.common.updates import unit_digest
from fullrank.rounds.decision import Decision, Decoded, Verdict
from fullrank.rounds.decoding import LeastSquaresDecoding, least_squares
from fullrank.rounds.round import Round

SIZES = (5, 3, 4)
CODE = make_code("mds", rows=6, units=3)
NOISES = np.random.default_rng(0).standard_normal((6, 3, 5))


def open_round(max_variance: float) -> Round:
    return Round(3, CODE, target_sizes=SIZES, decoding=LeastSquaresDecoding(max_variance))


def vector(row: int) -> Vector:
    """The row's combination of updates, which no other row shares."""
    updates = NOISES[row].copy()
    for unit, size in enumerate(SIZES):
        updates[unit, size:] = 0.0
    return np.asarray(CODE.matrix[row] @ updates)


def offer_row(round_: Round, row: int) -> Decision:
    for unit in support(CODE.matrix[row]):
        own = NOISES[row, unit, : SIZES[unit]].astype(np.float32)
        round_.report(unit, unit_digest(own), learner=row)
    round_.offer(learner=row, row=row, coded=vector(row))
    return round_.decide()


def predicted(*rows: int) -> float:
    return float(decoded_variances(CODE.matrix[sorted(rows)]).mean())


def test_it_waits_for_rank_then_for_low_variance() -> None:
    assert predicted(5, 0, 3) > predicted(5, 0, 3, 1) > predicted(5, 0, 3, 1, 2)
    round_ = open_round(predicted(5, 0, 3, 1, 2))
    verdicts = [offer_row(round_, row).verdict for row in (5, 0, 3, 1, 2)]
    assert verdicts == [Verdict.WAIT] * 2 + [Verdict.HIGH_VARIANCE] * 2 + [Verdict.COMMIT]


@pytest.mark.parametrize(
    ("limit", "expected"), [(np.inf, [Verdict.COMMIT] * 4), (0.0, [Verdict.HIGH_VARIANCE] * 4)]
)
def test_without_a_limit_rank_is_enough_and_at_zero_nothing_is(
    limit: float, expected: list[Verdict]
) -> None:
    round_ = open_round(limit)
    assert [offer_row(round_, row).verdict for row in range(6)] == [Verdict.WAIT] * 2 + expected


def test_a_decision_says_that_it_is_not_exact_and_how_noisy_it_is() -> None:
    round_ = open_round(np.inf)
    decision = [offer_row(round_, row) for row in (4, 1, 2)][-1]
    assert isinstance(decision, Decoded)
    assert decision.verdict is Verdict.COMMIT
    assert not decision.exact
    assert decision.variance == pytest.approx(predicted(4, 1, 2))
    assert decision.error_bound == np.inf
    assert decision.rows == ((4, 4), (1, 1), (2, 2))


@given(order=st.permutations(range(6)), count=st.integers(3, 6))
def test_every_vector_counts_and_the_order_of_arrival_does_not(
    order: list[int], count: int
) -> None:
    round_ = open_round(0.0)
    decision = [offer_row(round_, row) for row in order[:count]][-1]
    rows = sorted(order[:count])
    expected = least_squares(CODE.matrix[rows], [vector(row) for row in rows])
    assert isinstance(decision, Decoded)
    assert np.array_equal(decision.updates, expected)
    assert decision.digests == tuple(
        unit_digest(update[:size]) for update, size in zip(expected, SIZES, strict=True)
    )


@given(order=st.permutations(range(6)))
def test_no_digit_depends_on_who_came_first(order: list[int]) -> None:
    """The largest unit takes digits from the smallest one, and each order of summation others."""
    updates = NOISES[0] * [[1e9], [1.0], [1e-9]]
    coded = CODE.matrix @ updates
    round_ = open_round(0.0)
    for row in order:
        for unit in support(CODE.matrix[row]):
            round_.report(unit, b"its own", learner=row)
        round_.offer(learner=row, row=row, coded=coded[row])
    decision = round_.decide()
    assert isinstance(decision, Decoded)
    assert decision.updates.tobytes() == least_squares(CODE.matrix, list(coded)).tobytes()


def test_what_is_too_large_for_an_update_is_not_committed() -> None:
    round_ = open_round(np.inf)
    for row in range(2):
        offer_row(round_, row)
    for unit in range(3):
        round_.report(unit, b"digest", learner=2)
    round_.offer(learner=2, row=2, coded=np.full(5, 1e300))
    assert round_.decide().verdict is Verdict.CORRUPT
