"""Table V, noise and times of [DARL1N]: Monte Carlo against closed forms, and results of claims."""

import copy
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fullrank.codes.analysis import computation_overhead, decodable_given_losses, variance
from fullrank.common.types import JSON
from fullrank_reproduction.cells import run
from fullrank_reproduction.claim_results import ClaimResult, Held
from fullrank_reproduction.darl1n import noise, published, table_v, times
from fullrank_reproduction.darl1n.claims_table import judge_noise, judge_published, judge_table
from fullrank_reproduction.darl1n.claims_times import judge_convergence, judge_figure
from fullrank_reproduction.darl1n.experiment import cells
from fullrank_reproduction.darl1n.published import LDGM, MDS, RATES, REPETITION, SPARSE, UNCODED
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.scales import Darl1nScale
from fullrank_reproduction.darl1n.straggler_models import (
    StragglerModel,
    stragglers,
    success_probability,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.vandermonde import exact_variance

NO_TRAINING = Darl1nBudget(
    sizes=0, iterations=1, every=1, batch=16, seeds=1, timed=1, draws=0, episodes=0
)
TINY = Darl1nScale(
    name="tiny",
    budget=NO_TRAINING,
    trials=400,
    sets=60,
    exact_sets=2,
    samples=150,
    draws=2,
    rounds=20,
)
MACHINES = times.published_machines()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(cells(TINY), tmp_path_factory.mktemp("darl1n"))


def held(verdicts: list[ClaimResult]) -> list[Held]:
    return [verdict.held for verdict in verdicts]


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


@pytest.mark.thorough
def test_monte_carlo_agrees_with_the_closed_forms(found: Results) -> None:
    compared = 0
    for scheme in published.SCHEMES:
        for model in StragglerModel:
            sampled = found[f"table-v-{scheme.name}"]["success"][model]
            for rate, entry in zip(RATES, sampled, strict=True):
                closed = success_probability(scheme.name, model, rate)
                if closed is not None:
                    compared += 1
                    error = math.sqrt(closed * (1.0 - closed) / TINY.trials)
                    assert abs(entry["value"] - closed) <= 4.0 * error + 1e-12
    assert compared == 18


def test_random_matrices_are_drawn_anew_for_each_trial() -> None:
    row = table_v.cell(LDGM[1], trials=5, sets=5).compute()
    overheads = [computation_overhead(LDGM[1].make_code(seed)) for seed in range(5)]
    assert len(set(overheads)) > 1
    assert row["overhead"] == pytest.approx(sum(overheads) / 5)


def test_rational_and_floating_arithmetic_agree_where_both_can() -> None:
    code = LDGM[1].make_code()
    assert exact_variance(code.matrix) == pytest.approx(variance(code, range(24)), abs=1e-9)


@pytest.mark.thorough
def test_no_average_is_given_where_too_few_sets_decode(found: Results) -> None:
    entry = found[f"table-v-{REPETITION.name}"]["variance"][0]
    assert entry["sets"] < table_v.LEAST_SETS
    assert entry["mean"] is None


@pytest.mark.thorough
@pytest.mark.parametrize(("scheme", "rate"), [(UNCODED, 0.0), (UNCODED, 0.2), (MDS, 0.0)])
def test_the_machines_take_the_times_that_they_were_solved_from(
    found: Results, scheme: published.Scheme, rate: float
) -> None:
    point = found[f"times-{scheme.name}"][times.point(StragglerModel.BERNOULLI, 1.0, rate)]
    said = published.CONVERGENCE_S[scheme.name][RATES.index(rate)]
    assert MACHINES.iterations * point["seconds"] == pytest.approx(said, rel=0.03)


@pytest.mark.thorough
def test_three_published_times_predict_the_fourth_of_uncoded(found: Results) -> None:
    point = found[f"times-{UNCODED.name}"][times.point(StragglerModel.BERNOULLI, 1.0, 0.5)]
    said = published.CONVERGENCE_S[UNCODED.name][2]
    assert MACHINES.iterations * point["seconds"] == pytest.approx(said, rel=0.01)


@pytest.mark.thorough
def test_whole_copies_are_the_only_code_at_the_bound_with_all_rows_and_at_half(
    found: Results,
) -> None:
    whole = found[f"noise-{REPETITION.name}"]
    assert whole["24"]["least"] == pytest.approx(1.0)
    assert whole["20"]["noise"][1] == pytest.approx((3 * 12 - 20) / 24)


@pytest.mark.thorough
def test_dense_codes_wait_for_more_rows_until_the_variance_is_low_and_light_ones_do_not(
    found: Results,
) -> None:
    more: dict[str, float] = {}
    for scheme in times.SCHEMES:
        played = found[f"times-{scheme.name}"]
        for model in StragglerModel:
            ranked, waited = (
                played[times.point(model, 1.0, 0.2)],
                played[times.low_variance_point(model, 0.2)],
            )
            assert waited["seconds"] >= ranked["seconds"]
            more[scheme.name] = waited["rows"] - ranked["rows"]
    assert more[UNCODED.name] == more[REPETITION.name] == 0.0
    assert min(more[MDS.name], more[SPARSE[2].name]) > 2.0


@pytest.mark.thorough
def test_the_verdicts_are_those_of_the_page(found: Results) -> None:
    yes, no, assumed = Held.HELD, Held.NOT_HELD, Held.INPUT
    assert held(judge_published(found)) == [no, yes, no, no, no]
    assert held(judge_table(found)) == [yes, yes, yes, yes, no, yes, yes]
    assert held(judge_noise(found)) == [yes, yes, yes]
    assert held(independent(found)) == [assumed, no, yes, no, yes]
    assert held(fixed(found))[:2] == [assumed, no]
    assert held(fixed(found))[3:] == [yes, yes]  # the one between is near a draw
    assert held(convergence(found)) == [yes, no]


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


@pytest.mark.thorough
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


def test_a_scale_is_computed_once(tmp_path: Path) -> None:
    names = [cell.name for cell in cells(TINY)]
    assert len(names) == len(set(names))
    assert names == [
        "lemma-1",
        *(f"table-v-{scheme.name}" for scheme in published.SCHEMES),
        "exact-vandermonde",
        *(f"noise-{name}" for name in noise.CODES),
        *(f"times-{scheme.name}" for scheme in times.SCHEMES),
    ]
