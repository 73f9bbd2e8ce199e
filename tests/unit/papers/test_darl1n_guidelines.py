"""The guidelines of [DARL1N, Sec. VI-B3] can be held and can fail."""

from collections.abc import Mapping

import pytest

from fullrank.common.types import JSON
from fullrank_darl1n.published import (
    DELAYS_S,
    LDGM,
    MDS,
    RATES,
    REPETITION,
    SPARSE,
    TIMED,
    UNCODED,
    StragglerModel,
)
from fullrank_darl1n.time_claims import judge_guidelines
from fullrank_darl1n.times import point
from fullrank_papers.claims import Held

SCHEMES = [scheme.name for scheme in (UNCODED, REPETITION, LDGM[1], SPARSE[2], MDS)]
"""From the lightest to the most resilient."""
ORDER = {name: float(rank) for rank, name in enumerate(SCHEMES)}
STABLE_TIME, STABLE_VARIANCE, QUALITY, RESILIENCE, BOTH, CORRELATED = range(6)


def found(
    *,
    seconds: Mapping[str, float] = ORDER,
    variance: Mapping[str, float] = ORDER,
    success: Mapping[str, float] = ORDER,
) -> dict[str, JSON]:
    """Results in which only the scheme matters; by default as the paper says."""
    results: dict[str, JSON] = {}
    for scheme in TIMED:
        entry = {"seconds": 1.0 + seconds[scheme.name], "variance": variance[scheme.name]}
        results[f"times-{scheme.name}"] = {
            point(StragglerModel.BERNOULLI, DELAYS_S[0], rate): entry for rate in RATES
        }
        share = {"value": success[scheme.name] / 10.0, "standard_error": 0.001}
        results[f"table-v-{scheme.name}"] = {
            "success": {model: [share] * len(RATES) for model in StragglerModel}
        }
    return results


def test_guidelines_hold_where_the_schemes_are_ordered_as_the_paper_says() -> None:
    quiet = found(variance={**ORDER, UNCODED.name: 1.0})
    judged = [each.held for each in judge_guidelines(quiet)]
    assert judged == [Held.HELD] * 6


@pytest.mark.parametrize(
    ("guideline", "changed", "scheme", "value"),
    [
        (STABLE_TIME, "seconds", REPETITION.name, -0.5),
        (STABLE_VARIANCE, "variance", LDGM[1].name, -1.0),
        (QUALITY, "variance", LDGM[1].name, 0.5),
        (RESILIENCE, "success", LDGM[1].name, 3.5),
        (BOTH, "success", LDGM[1].name, 0.5),
        (BOTH, "variance", LDGM[1].name, 9.0),
    ],
)
def test_a_scheme_out_of_order_speaks_against_a_guideline(
    guideline: int, changed: str, scheme: str, value: float
) -> None:
    judged = judge_guidelines(found(**{changed: {**ORDER, scheme: value}}))
    assert judged[guideline].held is Held.NOT_HELD
    assert scheme.partition("-")[0] in judged[guideline].reason or guideline in (QUALITY, BOTH)
