"""Table V, noise, times and Lemma 1 of [DARL1N] against closed forms, and results of claims."""

import copy
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from fullrank.codes.analysis import decodable_given_losses, variance
from fullrank.common.types import JSON
from fullrank_darl1n import published, times
from fullrank_darl1n.coding import exact_variance
from fullrank_darl1n.lemma_1 import (
    CELL,
    cell,
    judge_lemma,
    limit,
    policy,
    spread,
    values,
)
from fullrank_darl1n.paper import PAPER, code_cells
from fullrank_darl1n.published import (
    DELAYS_S,
    LDGM,
    MDS,
    RATES,
    REPETITION,
    SCALES,
    SPARSE,
    TABLE_VI,
    UNCODED,
    StragglerModel,
    stragglers,
    success_probability,
)
from fullrank_darl1n.table_claims import judge_noise, judge_table
from fullrank_darl1n.time_claims import LIGHT, judge_convergence, judge_figure
from fullrank_papers.cells import CellStore, Results, gather
from fullrank_papers.claims import ClaimResult, Held

COMMITTED = Path(__file__).resolve().parents[3] / "papers" / PAPER.folder / "standard"
MACHINES = times.published_machines()


@pytest.fixture(scope="module")
def found() -> Results:
    """The committed results about codes."""
    return gather(code_cells(SCALES["standard"]), CellStore(COMMITTED), chosen=())


def independent(found: Results) -> list[ClaimResult]:
    return judge_figure(found, StragglerModel.BERNOULLI)


def fixed(found: Results) -> list[ClaimResult]:
    return judge_figure(found, StragglerModel.FIXED)


def convergence(found: Results) -> list[ClaimResult]:
    return judge_convergence(found, MACHINES)


@pytest.mark.parametrize("scheme", [UNCODED, MDS, REPETITION])
def test_with_a_fixed_number_of_stragglers_the_closed_form_counts_all_sets(
    scheme: published.Scheme,
) -> None:
    rate = 0.1
    exact = decodable_given_losses(scheme.make_code(), stragglers(rate))
    assert exact.standard_error == 0.0
    assert success_probability(scheme.name, StragglerModel.FIXED, rate) == pytest.approx(
        exact.value
    )


def test_rational_and_floating_arithmetic_agree_where_both_can() -> None:
    code = LDGM[1].make_code()
    assert exact_variance(code.matrix) == pytest.approx(variance(code, range(24)), abs=1e-9)


@pytest.mark.parametrize(("scheme", "rate"), [(UNCODED, 0.0), (UNCODED, 0.2), (MDS, 0.0)])
def test_the_machines_take_the_times_that_they_were_solved_from(
    found: Results, scheme: published.Scheme, rate: float
) -> None:
    point = found[f"times-{scheme.name}"][times.point(StragglerModel.BERNOULLI, 1.0, rate)]
    said = TABLE_VI[scheme.name].seconds[RATES.index(rate)]
    assert MACHINES.iterations * point["seconds"] == pytest.approx(said, rel=0.03)


def table(scheme: published.Scheme) -> str:
    return f"table-v-{scheme.name}"


def raise_uncoded_success(found: dict[str, JSON]) -> None:
    found[table(UNCODED)]["success"]["fixed"][1]["value"] = 1.0
    found[table(MDS)]["success"]["fixed"][1]["value"] = 0.9


def lower_dense_success(found: dict[str, JSON]) -> None:
    found[table(SPARSE[2])]["success"]["fixed"][2]["value"] = 0.1


def lower_ldgm_variance(found: dict[str, JSON]) -> None:
    found[table(LDGM[1])]["variance"][2]["mean"] = -9.0


def lower_sparse_variance(found: dict[str, JSON]) -> None:
    found[table(SPARSE[0])]["variance"][1]["mean"] = -20.0


def undercut_least_noise(found: dict[str, JSON]) -> None:
    found["noise-mds"]["13"]["least"] = 0.99


def lower_mds_noise(found: dict[str, JSON]) -> None:
    found["noise-mds"]["12"]["noise"][1] = 9.0


def raise_harmonic_noise(found: dict[str, JSON]) -> None:
    found["noise-harmonic"]["18"]["noise"][1] = 2.1


def lengthening(
    scheme: published.Scheme, delay_s: float, rate: float
) -> Callable[[dict[str, JSON]], None]:
    def lengthen(found: dict[str, JSON]) -> None:
        for model in StragglerModel:
            found[f"times-{scheme.name}"][times.point(model, delay_s, rate)]["seconds"] = 99.0

    return lengthen


def raise_sparse_overhead(found: dict[str, JSON]) -> None:
    found[table(SPARSE[0])]["overhead"] = 24.0


@pytest.mark.parametrize(
    ("judge", "claim", "change"),
    [
        (judge_table, 0, raise_sparse_overhead),
        (judge_table, 1, raise_uncoded_success),
        (judge_table, 2, lower_dense_success),
        (judge_table, 5, lower_ldgm_variance),
        (judge_table, 6, lower_sparse_variance),
        (judge_noise, 0, undercut_least_noise),
        (judge_noise, 1, lower_mds_noise),
        (judge_noise, 2, raise_harmonic_noise),
        (independent, 0, lengthening(UNCODED, 1.0, 0.0)),
        (independent, 0, lengthening(REPETITION, 1.0, 0.0)),
        (fixed, 3, lengthening(MDS, 4.0, 0.2)),
        (fixed, 4, lengthening(MDS, 4.0, 0.5)),
        (convergence, 0, lengthening(LDGM[1], 1.0, 0.5)),
    ],
)
def test_what_speaks_against_a_claim_is_found(
    found: Results,
    judge: Callable[[Results], list[ClaimResult]],
    claim: int,
    change: Callable[[dict[str, JSON]], None],
) -> None:
    wrong = copy.deepcopy(dict(found))
    change(wrong)
    assert judge(found)[claim].held in (Held.HELD, Held.INPUT)
    assert judge(wrong)[claim].held is Held.NOT_HELD


def test_light_codes_must_win_most_cases_with_stragglers_and_those_without_do_not_count(
    found: Results,
) -> None:
    changed = copy.deepcopy(dict(found))
    for scheme, delay_s in product(LIGHT, DELAYS_S):
        lengthening(scheme, delay_s, 0.5)(changed)
    before, after = independent(found)[2], independent(changed)[2]
    assert (before.held, before.reason) == (Held.HELD, "in 10 of 16")
    assert (after.held, after.reason) == (Held.NOT_HELD, "in 6 of 16 only")


def test_claims_on_v_name_the_rows_at_which_enough_sets_decode(found: Results) -> None:
    by_claim = {each.claim: each.reason for each in judge_table(found)}
    assert by_claim["MDS has the largest V, with the Vandermonde matrix."] == "at |J| = 12, 18, 24"
    assert by_claim["Repetition has the smallest V."] == "at |J| = 18, 24"
    assert by_claim["Sparse has a larger V than LDGM."].endswith("at |J| = 18, 24")


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
