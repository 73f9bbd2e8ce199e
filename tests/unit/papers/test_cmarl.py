"""Claims of [CMARL] on given results; computing them is ``fullrank reproduce cmarl``."""

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

from fullrank.algorithms.container_learner import Diversity
from fullrank.runs.record import IterationRecord
from fullrank.training.heads import Heads
from fullrank.wiring.containers import container_of, head_size_of
from fullrank.wiring.training import training_of
from fullrank_cmarl import paper, queues
from fullrank_cmarl.claims import rank_correlation
from fullrank_cmarl.systems import SCALES, SYSTEMS, CmarlScale, cell_name, cells
from fullrank_papers.cells import Cell
from fullrank_papers.claims import ClaimResult, Held, Whose
from fullrank_papers.paper import Findings
from fullrank_papers.virtual import CHANNELS

SMOKE = replace(SCALES["smoke"], short="")
QUIET = {"blocks": 9, "updates": 9, "between": 0.004, "lockstep": 0.005, "idle": 0.02}


def course(won: float) -> dict[str, Any]:
    """A course of two evaluations, and a win rate over time."""
    point, later = [
        [{"win_rate": rate, "time_s": 1.0}.get(name, 0) for name in CHANNELS]
        for rate in (0.5 * won, 1.5 * won)
    ]
    facts = {"played_bytes": 100.0, "travelled_bytes": 60.5, "episodes": 5.0, "iterations": 3.0}
    return {"points": [point, later], "facts": facts}


def given(won: Mapping[str, float]) -> dict[str, Any]:
    """Results in which all systems are ranked alike on all maps, with some noise."""
    noise = np.random.default_rng(0)
    made = {
        cell_name(name, scenario, seed): course(won[name] + 0.001 * noise.random() * won[name])
        for name, scenario, seed in product(SYSTEMS, SMOKE.maps, SMOKE.seeds)
    }
    rates = {paper.collection_name(n): {"episodes_per_s": 4.9 * n} for n in (2, 3)}
    return {
        **made,
        **rates,
        paper.collection_name(1): {"episodes_per_s": 5.0},
        queues.WAITS: QUIET,
        queues.GROUPS: {"memory": 5.0, "fsync": 9.0},
    }


AS_CLAIMED = given(
    {
        "cmarl": 0.6,
        "cmarl-2-containers": 0.5,
        "cmarl-8-actors": 0.45,
        "cmarl-1-container": 0.4,
        "cmarl-2-actors": 0.3,
        "cmarl-no-diversity": 0.45,
        "apex": 0.4,
        "apex-overload": 0.35,
        "parallel": 0.3,
        "parallel-v2": 0.25,
        "qmix": 0.1,
        "qplex": 0.1,
    }
)


def findings(results: Mapping[str, Any], scale: CmarlScale = SMOKE) -> Findings[CmarlScale]:
    return Findings(scale=scale, results=results, whole=frozenset())


def judged(results: Mapping[str, Any]) -> dict[str, list[ClaimResult]]:
    """Results by the claim's number."""
    found: dict[str, list[ClaimResult]] = {}
    for source in paper.judged(findings(results)).values():
        for result in source:
            found.setdefault(re.split("[: ]", result.claim)[0], []).append(result)
    return found


def test_every_claim_is_judged_or_said_to_be_untestable() -> None:
    found = judged(AS_CLAIMED)
    assert found.keys() == {f"C{number}" for number in range(1, 12)}
    for number in (1, 3, 4, 5, 6, 7, 9):
        assert found[f"C{number}"][0].held is Held.HELD, found[f"C{number}"][0]
    assert [each.held for each in found["C6"]] == [Held.HELD] * 3
    assert found["C1"][1].held is Held.UNDECIDED
    assert "2 censored: RODE (+ 1)" in found["C1"][1].reason
    for number, verdict in ((2, Held.UNDECIDED), (8, Held.UNDECIDED), (10, Held.INPUT)):
        assert [each.held for each in found[f"C{number}"]] == [verdict]
    assert found["C11"][0].held is Held.INPUT


def test_without_results_nothing_is_judged() -> None:
    for results in judged({}).values():
        assert {each.held for each in results} <= {Held.NOT_TESTABLE, Held.UNDECIDED}


def test_a_missing_run_is_said() -> None:
    fewer = {name: each for name, each in AS_CLAIMED.items() if name != cell_name("qmix", "3m", 1)}
    (result, *_) = judged(fewer)["C1"]
    assert result.held is Held.UNDECIDED
    assert "1 censored: 1 of 9 pairs of map and seed" in result.reason
    assert judged(fewer)["C5"][0].held is Held.HELD


def test_short_runs_hold_nothing() -> None:
    found = paper.judged(findings(AS_CLAIMED, SCALES["smoke"]))
    results = [each for source in found.values() for each in source if each.chance is not None]
    assert {each.held for each in results} == {Held.UNDECIDED}


def test_two_seeds_decide_nothing() -> None:
    found = paper.judged(findings(AS_CLAIMED, replace(SMOKE, seeds=(1, 2))))
    results = [each for source in found.values() for each in source]
    held = [each.claim[:3] for each in results if each.held is Held.HELD]
    assert held == ["C9 "]


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({queues.WAITS: QUIET | {"idle": 0.06}}, "C9"),
        ({queues.WAITS: QUIET | {"lockstep": 0.0065}}, "C9"),
        ({queues.GROUPS: {"memory": 3.9, "fsync": 9.0}}, "C9"),
        ({paper.collection_name(3): {"episodes_per_s": 13.4}}, "C11"),
        (
            {
                cell_name("cmarl", "3m", 1): {
                    **course(0.6),
                    "facts": {"played_bytes": 100.0, "travelled_bytes": 63.0},
                }
            },
            "C10",
        ),
    ],
)
def test_what_misses_its_bound_is_not_held(changed: dict[str, Any], claim: str) -> None:
    (result,) = judged(AS_CLAIMED | changed)[claim]
    assert result.held is Held.NOT_HELD


def test_the_order_of_systems_decides() -> None:
    names = ["cmarl", "cmarl-no-diversity", "apex", "apex-overload", "parallel"]
    level = given(dict.fromkeys(SYSTEMS, 0.0))
    found = judged(level)
    assert {found[claim][0].held for claim in ("C1", "C7")} == {Held.UNDECIDED}  # nobody wins
    assert "the ratio says little" in str(found["C1"][0])
    claims = ("C3", "C4", "C5", "C6")
    assert Held.HELD not in [each.held for claim in claims for each in found[claim]]
    rates = dict(zip(names, (0.1, 0.2, 0.3, 0.4, 0.5), strict=True))
    turned = given({**dict.fromkeys(SYSTEMS, 0.3), **rates})
    assert {each.held for claim in ("C5", "C6") for each in judged(turned)[claim]} == {
        Held.NOT_HELD
    }


def test_one_system_refutes_a_claim_on_systems_that_are_not_built() -> None:
    equal = given(dict.fromkeys(SYSTEMS, 0.3))
    assert judged(equal)["C1"][1].held is Held.NOT_HELD


def test_equal_ranks_are_shared() -> None:
    actors = np.array([39.0, 26.0, 24.0, 13.0, 6.0])
    assert rank_correlation(actors, np.array([0.5, 0.4, 0.3, 0.2, 0.1])) == pytest.approx(1.0)
    assert rank_correlation(actors, np.zeros(5)) == 0.0
    assert rank_correlation(actors, np.array([0.0, 0.0, 0.0, 0.0, 0.3])) == pytest.approx(
        float(stats.spearmanr(actors, [0.0, 0.0, 0.0, 0.0, 0.3]).statistic)
    )


def test_a_rate_leaves_the_first_iterations_out() -> None:
    seen = [
        (at_s, cast(IterationRecord, SimpleNamespace(statistics={"episodes": episodes})))
        for at_s, episodes in ((1.0, 100), (2.0, 110), (3.0, 115), (4.0, 130))
    ]
    assert paper.episodes_per_s(seen) == 10.0


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_scale_configures_every_system(scale: Any) -> None:
    made = cells(replace(scale, maps=scale.maps[-1:], seeds=(1,), more_curves={}))
    assert len({each.name for each in made}) == len(SYSTEMS)
    runs = {each.name: each.settings["run"] for each in made}
    sizes = {run["algorithm"]["batch_size"] for run in runs.values()}
    assert sizes == ({32, 128} if scale is SCALES["paper"] else {32})
    (of_v2,) = [run for name, run in runs.items() if "parallel-v2" in name]
    assert of_v2["algorithm"]["trace"] == 0.6
    assert of_v2["environment"]["copies"] == 39
    drawn = {each.name: each.settings["run"]["sampling"]["method"] for each in made}
    spread = {name for name in drawn if "-cmarl" in name or "-apex" in name}
    expected = "uniform" if scale is SCALES["smoke"] else "prioritised"
    assert {drawn[name] for name in spread} == {expected}
    assert {drawn[name] for name in drawn.keys() - spread} == {"uniform"}


def test_systems_may_have_fewer_seeds_or_more() -> None:
    scale = replace(SCALES["standard"], seeds=(1, 2, 3), fewer=2, more_curves={"cmarl": (9,)})
    names = {cell.name for cell in cells(scale)}
    assert {"learning-3m-cmarl-2-actors-2", "learning-3m-cmarl-3", "learning-3m-cmarl-9"} <= names
    assert names.isdisjoint({"learning-3m-cmarl-2-actors-3", "learning-3m-apex-9"})


@pytest.mark.parametrize("scenario", SCALES["standard"].maps)
def test_the_heads_of_containers_that_have_not_learnt_are_drawn_apart(scenario: str) -> None:
    scale = SCALES["standard"]
    config, playing = (scale.config(name, scenario, 21) for name in ("cmarl", "parallel"))
    training = training_of(playing)
    with closing(training.collector) as collector:
        rows, spec = collector.warm_up(), training.environment
    heads = Heads(head_size_of(config, spec))
    first, *others = (
        container_of(config, spec, number=number, heads=heads).learner for number in range(3)
    )
    apart = first.update(rows, [each.head for each in others])["divergence"]
    assert 0.0 < apart < Diversity().target


def test_crowded_cores_slow_actors_and_learner_alike() -> None:
    alone, crowded = (SMOKE.durations_of(name) for name in ("apex", "apex-overload"))
    for phase in ("step_s", "acting_s", "update_s"):
        assert getattr(crowded, phase) == 1.6 * getattr(alone, phase)
    assert crowded.wire_s == alone.wire_s


def test_smax_is_judged_where_a_scale_has_it() -> None:
    scale = replace(SMOKE, independent=("smax-3m",))
    apart = {
        cell_name(name, "smax-3m", seed): course(rate + 0.001 * seed * rate)
        for name, rate in (("cmarl", 0.6), ("apex", 0.4))
        for seed in scale.seeds
    }
    (result,) = paper.judged(findings(apart, scale))["SMAX"]
    assert (result.held, result.whose) == (Held.HELD, Whose.OURS)
    assert "SMAX" not in paper.judged(findings(apart))
    made = paper.PAPER.parts["smax"](scale)
    assert {each.name for each in made} == apart.keys()
    environments = [cast(Cell, each).settings["run"]["environment"] for each in made]
    assert {(each["name"], each["map"]) for each in environments} == {("smax", "3m")}
