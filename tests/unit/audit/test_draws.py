"""Draws of audits follow a secret, and catch k lies with the probability that is promised."""

import math

import pytest

from fullrank.audit.ledger import KEY_BYTES, AuditDraws

DRAWS = AuditDraws(bytes(range(KEY_BYTES)))
OTHERS = AuditDraws(bytes(KEY_BYTES))


def test_one_iteration_of_each_window_is_audited_and_no_place_in_it_is_safe() -> None:
    due = [iteration for iteration in range(10_000) if DRAWS.audits(iteration, every=10)]
    assert [iteration // 10 for iteration in due] == list(range(1000))
    assert {iteration % 10 for iteration in due} == set(range(10))


def test_another_key_makes_other_draws_and_none_is_printed() -> None:
    units = [DRAWS.below(8, "unit", iteration) for iteration in range(100)]
    assert units == [AuditDraws(bytes(range(KEY_BYTES))).below(8, "unit", i) for i in range(100)]
    assert units != [OTHERS.below(8, "unit", iteration) for iteration in range(100)]
    assert set(units) == set(range(8))
    for due in (
        [[draws.audits(i, every=10) for i in range(100)] for draws in (DRAWS, OTHERS)],
        [[draws.spots(i, 0, probability=0.5) for i in range(100)] for draws in (DRAWS, OTHERS)],
    ):
        assert due[0] != due[1]
    assert "x0" not in repr(DRAWS)


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("lies", [1, 3, 10])
def test_k_lies_are_caught_with_probability_one_minus_one_minus_p_to_the_k(
    probability: float, lies: int
) -> None:
    """Within four standard errors of 5,000 attempts, each of k lies in one or more iterations."""
    attempts = 5000
    caught = sum(
        any(
            DRAWS.spots(attempt * lies + lie // 2, lie % 2, probability=probability)
            for lie in range(lies)
        )
        for attempt in range(attempts)
    )
    expected = 1.0 - (1.0 - probability) ** lies
    error = math.sqrt(expected * (1.0 - expected) / attempts)
    assert abs(caught / attempts - expected) < 4.0 * error


def test_certainty_and_impossibility_are_exact() -> None:
    assert all(DRAWS.spots(iteration, 0, probability=1.0) for iteration in range(1000))
    assert not any(DRAWS.spots(iteration, 0, probability=0.0) for iteration in range(1000))
