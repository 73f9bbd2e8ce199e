"""``fullrank codes``: how often a wrong computation is caught, and a choice explained."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faultlab.simulation import toy_algorithm
from tests.unit.planning.worlds import late

from fullrank.cli import codes as codes_command
from fullrank.codes import Code, codes
from fullrank.codes.learner_codes import code_for_learners
from fullrank.config import load, to_toml
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.config.plugins import problem_of
from fullrank.planning.candidates import Plan
from fullrank.planning.costs import Payload
from fullrank.planning.planner import Planner
from fullrank.planning.simulation import SimulatedRounds, observation_of, play
from fullrank.planning.tuning import TUNING
from fullrank.runs.record import IterationRecord, read_records, to_line

from .conftest import Command
from .test_plot import record


@pytest.mark.parametrize(
    ("code", "caught", "in_audits"),
    [
        (("cyclic", "--learners", "4", "--units", "3"), 0.5, 1.0),
        (("mds", "--learners", "5", "--units", "3"), 1.0, 1.0),
        (("replication", "--learners", "6", "--units", "3"), 2 / 3, 1.0),
        (("uncoded", "--learners", "3", "--units", "3"), 0.0, 0.0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_show_tells_how_often_a_wrong_computation_is_caught(
    fullrank: Any, code: tuple[str, ...], caught: float, in_audits: float
) -> None:
    facts = json.loads(fullrank("codes", "show", *code, "--json").output)
    assert facts["caught"] == pytest.approx(caught)
    assert facts["caught_in_audits"] == in_audits
    text = " ".join(fullrank("codes", "show", *code).output.split())
    assert f"caught before the commit for {caught:.0%} of units and sets J" in text


assert toy_algorithm  # importing it registers the algorithms


def configure(run: Path, *overrides: str) -> None:
    (run / "config.toml").write_text(to_toml(load(overrides=["learners=4", *overrides]).config))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four learners; learner 3 is a second late in every iteration that waits for it."""
    configure(tmp_path)
    lines = []
    for iteration in range(30):
        here = [0, 1, 2] if iteration % 3 else [0, 1, 3]
        times = {each: 1.0 if each == 3 else 0.1 for each in here}
        lines.append(
            record(
                iteration, code_rows=4, tolerance=1, received=tuple(here),
                rows={each: each for each in range(4)}, arrival_s=times,
                compute_s=dict.fromkeys(here, 0.1),
            )
        )  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(to_line(each) + "\n" for each in lines))
    return tmp_path


def test_a_run_is_explained_from_its_records(fullrank: Command, run: Path) -> None:
    code, output, _ = fullrank("codes", "plan", str(run), "--json")
    facts = json.loads(output)
    assert code == 0
    assert facts["used"] == [{"iteration": 0, "code": "cyclic,tolerance=1"}]
    assert any(label.startswith(facts["code"]) for label in facts["expected_s"])
    assert "cyclic,tolerance=1" in facts["reason"]
    assert list(facts["expected_s"].values()) == sorted(facts["expected_s"].values())


def test_a_run_that_hedges_is_planned_with_hedged_rounds(fullrank: Command, run: Path) -> None:
    configure(run, "controller.undecodable=hedge")
    facts = json.loads(fullrank("codes", "plan", str(run), "--json").output)
    assert "uncoded,hedged" in facts["expected_s"]
    configure(run, "controller.undecodable=wait")
    facts = json.loads(fullrank("codes", "plan", str(run), "--json").output)
    assert "cyclic,tolerance=1" in facts["expected_s"]
    assert "uncoded" not in facts["expected_s"]


def test_learners_that_the_code_left_without_a_row_are_planned_for(
    fullrank: Command, tmp_path: Path
) -> None:
    configure(tmp_path, "learners=6")
    rows, times = {each: each for each in range(4)}, dict.fromkeys(range(4), 0.1)
    lines = [
        record(
            iteration, code="uncoded", code_rows=6, tolerance=0, received=(0, 1, 2, 3),
            rows=rows, arrival_s=times, compute_s=times,
        )
        for iteration in range(30)
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(to_line(each) + "\n" for each in lines))
    outcome = fullrank("codes", "plan", str(tmp_path), "--json")
    assert "cyclic,tolerance=2" in json.loads(outcome.output)["expected_s"]


def test_learners_that_halve_within_a_term_hold_wider_rows(
    fullrank: Command, tmp_path: Path
) -> None:
    """Both codes have six rows: one for each of six learners, and two for each of three."""
    configure(tmp_path, "learners=6", "environment.agents=4")
    lines = []
    for iteration in range(60):
        width = 1 if iteration < 30 else 2
        code = code_for_learners(codes.build("cyclic", tolerance=1), learners=6 // width, units=4)
        assert (code.rows, code.rows_per_learner) == (6, width)
        times = {learner: 0.1 * units for learner, units in enumerate(code.load.tolist())}
        lines.append(
            record(
                iteration, code_rows=6, rows_per_learner=width, tolerance=1, received=(*times,),
                rows={each: width * each for each in times}, arrival_s=times, compute_s=times,
            )
        )  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(to_line(each) + "\n" for each in lines))
    facts = json.loads(fullrank("codes", "plan", str(tmp_path), "--json").output)
    assert facts["expected_s"]["cyclic,tolerance=1"] == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("density", [0.4, 0.9])
def test_units_of_a_random_code_are_those_of_its_own_parameters(
    fullrank: Command, tmp_path: Path, density: float
) -> None:
    asked = (f"code.density={density}", "code.name=random_sparse", "environment.agents=4")
    configure(tmp_path, "learners=6", *asked)
    family = codes.build("random_sparse", density=density)
    code = code_for_learners(family, learners=6, units=4)
    times = {learner: 0.1 * units for learner, units in enumerate(code.load.tolist()) if units}
    line = record(
        0, code="random_sparse", code_rows=6, tolerance=code.tolerance, received=(*times,),
        rows={each: each for each in times}, arrival_s=times, compute_s=times,
    )  # fmt: skip
    lines = [replace(line, iteration=iteration) for iteration in range(30)]
    (tmp_path / "metrics.jsonl").write_text("".join(to_line(each) + "\n" for each in lines))
    facts = json.loads(fullrank("codes", "plan", str(tmp_path), "--json").output)
    assert facts["expected_s"]["uncoded"] == pytest.approx(0.1)
    assert facts["expected_s"]["mds"] == pytest.approx(0.3)


def test_no_code_is_quick_where_the_noise_makes_everybody_be_waited_for(
    fullrank: Command, run: Path
) -> None:
    darl1n = ("algorithm.name=darl1n", "environment.name=food_collection", "environment.agents=3")
    quickest = []
    for data in ("keyed", "independent"):
        configure(run, *darl1n, f"algorithm.data={data}", "algorithm.max_variance=0.0")
        facts = json.loads(fullrank("codes", "plan", str(run), "--json").output)
        quickest.append(min(facts["expected_s"].values()))
    assert quickest[0] < 0.9 < quickest[1]


def test_codes_with_too_few_holders_are_left_out_and_others_are_waited_for_longer(
    fullrank: Command, run: Path
) -> None:
    found = []
    for faults in range(3):
        configure(run, f"audit.byzantine={faults}")
        facts = json.loads(fullrank("codes", "plan", str(run), "--json").output)
        found.append(facts["expected_s"])
    trusted, one, two = found
    assert set(two) < set(one) <= set(trusted)
    assert "cyclic,tolerance=1" not in two
    assert trusted["cyclic,tolerance=1"] < one["cyclic,tolerance=1"]
    assert all(trusted[label] <= one[label] for label in one)
    assert all(one[label] <= two[label] for label in two)


def test_codes_of_the_sum_are_compared_where_the_run_recovers_the_sum(
    fullrank: Command, run: Path
) -> None:
    found = {}
    for algorithm in ("toy", "summed_toy"):
        configure(run, f"algorithm.name={algorithm}", "environment.agents=3")
        found[algorithm] = json.loads(fullrank("codes", "plan", str(run), "--json").output)
    added = set(found["summed_toy"]["expected_s"]) - set(found["toy"]["expected_s"])
    assert added == {"fractional,tolerance=1", "fractional,tolerance=3"}
    quickest = [min(facts["expected_s"].values()) for facts in found.values()]
    assert quickest[1] <= quickest[0]


def record_of(played: SimulatedRounds, iteration: int, code: Code, term: int) -> IterationRecord:
    """The record of a simulated round."""
    seen = observation_of(played, 0, code)
    here = np.isfinite(seen.arrival_s)
    learners = played.learners[here].tolist()
    return record(
        iteration, term=term, code=code.name, code_rows=code.rows, tolerance=code.tolerance,
        rows={each: each for each in seen.learners}, received=tuple(learners),
        compute_s=dict(zip(learners, seen.compute_s[here].tolist(), strict=True)),
        arrival_s=dict(zip(learners, seen.arrival_s[here].tolist(), strict=True)),
    )  # fmt: skip


def test_the_plan_is_the_controllers_of_this_term_after_the_stragglers_have_changed(
    fullrank: Command, tmp_path: Path
) -> None:
    config = load(overrides=["learners=15", "environment.agents=8", "code.name=auto"]).config
    payload, records = Payload.of(problem_of(config)), list[IterationRecord]()
    for term, iterations in ((1, range(5)), (2, range(5, 50))):
        planner = Planner(AutoCodeSettings(), units=8, seed=config.seed, moved=payload.traffic)
        plan = planner.plan(range(15))
        for iteration in iterations:
            world, code = late(7 if iteration < 30 else 1), plan.candidate.code
            machines = world.cluster(payload)
            played = play(machines, code, world.delays, iterations=[iteration], seed=0)
            planner.observe(observation_of(played, 0, code))
            records.append(record_of(played, iteration, code, term))
            if (iteration + 1) % TUNING.interval == 0:
                plan = planner.plan(range(15))
    (tmp_path / "config.toml").write_text(to_toml(config))
    (tmp_path / "metrics.jsonl").write_text("".join(to_line(each) + "\n" for each in records))
    facts = json.loads(fullrank("codes", "plan", str(tmp_path), "--json").output)
    assert (facts["code"], facts["changed"], facts["reason"]) == (
        plan.candidate.label, plan.changed, plan.reason,
    )  # fmt: skip
    assert facts["expected_s"] == {each.label: each.mean_s for each in plan.forecasts}


def test_a_run_with_a_fixed_code_is_planned_once_over_the_last_window(
    fullrank: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its controller has made no plans that would have to be made again."""
    made, make = list[object](), Planner.plan

    def plan(planner: Planner, learners: Sequence[int]) -> Plan:
        made.append(planner)
        return make(planner, learners)

    monkeypatch.setattr(Planner, "plan", plan)
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text()
    recent = [replace(each, iteration=30 + at) for at, each in enumerate(read_records(metrics))]
    window = "".join(to_line(each) + "\n" for each in recent)
    monkeypatch.setattr(codes_command, "TUNING", replace(TUNING, window=30))
    found = []
    for text in (window, lines.replace("0.1", "5.0") + window):
        metrics.write_text(text)
        found.append(json.loads(fullrank("codes", "plan", str(run), "--json").output))
    assert found[0]["expected_s"] == found[1]["expected_s"]
    assert len(made) == 2


def test_what_cannot_be_planned_says_so(fullrank: Command, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(to_toml(load().config))
    (tmp_path / "metrics.jsonl").write_text(to_line(record(0)) + "\n")
    assert "no iteration with recorded arrivals" in fullrank("codes", "plan", str(tmp_path)).error
