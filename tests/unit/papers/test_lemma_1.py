"""Lemma 1 of [DARL1N], exact: agents that are no neighbours move Q_i by 2 r gamma / (1 - gamma)."""

import pytest

from fullrank_darl1n.lemma_1 import (
    CELL,
    cell,
    judge_lemma,
    limit,
    policy,
    spread,
    values,
)
from fullrank_papers.claims import Held


@pytest.mark.parametrize("discount", [0.5, 0.95])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 20.0])
def test_q_depends_on_those_beyond_the_neighbourhood_within_the_bound(
    discount: float, sharpness: float
) -> None:
    found = spread(values(policy(sharpness, 0), discount))
    assert found <= limit(discount)
    assert (found < 1e-9) == (sharpness == 0.0)


def test_some_policy_reaches_the_bound_and_a_larger_spread_refutes_the_lemma() -> None:
    shares = cell().compute()
    assert max(map(max, shares.values())) > 0.99
    (held,) = judge_lemma({CELL: shares})
    assert held.held is Held.HELD
    (refuted,) = judge_lemma({CELL: {**shares, "200": [1.1, 0.5, 0.5, 0.5]}})
    assert refuted.held is Held.NOT_HELD
