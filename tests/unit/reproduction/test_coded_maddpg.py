"""Cells are computed once; results of claims depend on numbers alone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from typer.testing import CliRunner

from fullrank.codes import make_code
from fullrank.common.seeding import stream
from fullrank.common.types import JSON
from fullrank.config import RunConfig
from fullrank.runs.record import IterationRecord
from fullrank_reproduction import (
    claims,
    coded_maddpg,
    decoding_cost,
    fig3,
    page,
    payload,
    timing,
    wang21,
)
from fullrank_reproduction.cells import Cell, CellOrigin, run
from fullrank_reproduction.claim_results import (
    EXACT,
    PRINTED,
    ClaimResult,
    Held,
    judge,
    measured,
)
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.cli import app
from fullrank_reproduction.scales import PAPER, SCALES, STANDARD, ReportPart
from fullrank_reproduction.timing import Setting


def counted(name: str, calls: list[str], *, seed: int = 0) -> Cell:
    def compute() -> JSON:
        calls.append(name)
        return {"value": [len(calls), None]}

    return Cell(name=name, settings={"seed": seed}, compute=compute)


def origins(cells: list[Cell], directory: Path) -> list[CellOrigin]:
    found: list[CellOrigin] = []
    run(cells, directory, done=lambda _, origin: found.append(origin))
    return found


def test_a_cell_is_computed_once(tmp_path: Path) -> None:
    calls: list[str] = []
    cells = [counted("a", calls), counted("b", calls)]
    first = run(cells, tmp_path)
    assert run(cells, tmp_path) == first
    assert calls == ["a", "b"]


def test_a_stop_costs_the_running_cell_alone(tmp_path: Path) -> None:
    calls: list[str] = []

    def interrupted() -> JSON:
        raise KeyboardInterrupt

    stopped = [counted("a", calls), Cell(name="b", settings={"seed": 0}, compute=interrupted)]
    with pytest.raises(KeyboardInterrupt):
        run(stopped, tmp_path)
    cells = [counted("a", calls), counted("b", calls)]
    assert origins(cells, tmp_path) == [CellOrigin.KEPT, CellOrigin.COMPUTED]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-3],
        lambda text: text.replace("null", "1"),
        lambda text: "[]",
        lambda text: json.dumps({"settings": {"seed": 0}}),
    ],
)
def test_a_damaged_result_is_computed_again_and_said_so(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    calls: list[str] = []
    cell = counted("a", calls)
    run([cell], tmp_path)
    path = tmp_path / "cells" / "a.json"
    path.write_text(damage(path.read_text()))
    assert origins([cell], tmp_path) == [CellOrigin.DAMAGED]
    assert origins([cell], tmp_path) == [CellOrigin.KEPT]
    assert len(calls) == 2


def test_a_result_of_other_settings_is_computed_again(tmp_path: Path) -> None:
    calls: list[str] = []
    run([counted("a", calls, seed=1)], tmp_path)
    assert origins([counted("a", calls, seed=2)], tmp_path) == [CellOrigin.CHANGED]


def predicted() -> TimeTable:
    times = {}
    for each in timing.settings(codes=wang21.CODES):
        times[each] = timing.simulated(each, timing.published_machines(each.task, each.agents))
    return claims.table(times)


@pytest.fixture(scope="module")
def virtual() -> TimeTable:
    return predicted()


def held(verdicts: list[ClaimResult]) -> list[Held]:
    return [verdict.held for verdict in verdicts]


@pytest.mark.thorough
def test_three_published_cells_of_a_row_predict_its_others(virtual: TimeTable) -> None:
    errors = sorted(
        abs(virtual[key] / value - 1.0)
        for key, value in claims.published().items()
        if key[0] != "keep_away" and key[2:] not in timing.INPUTS
    )
    assert len(errors) == 72
    assert errors[len(errors) // 2] < 0.02
    assert errors[-1] < 0.20


@pytest.mark.thorough
def test_all_claims_on_times_hold_in_virtual_time(virtual: TimeTable) -> None:
    assert held(claims.judge_times(virtual, EXACT)[:5]) == [Held.HELD] * 5


@pytest.mark.thorough
def test_the_planner_is_near_the_best_fixed_code() -> None:
    task = wang21.TASKS[1]
    machines = timing.published_machines(task, 8)
    seconds = {
        each.code: timing.simulated(each, machines)
        for each in timing.settings([task], agents=[8])
        if each.stragglers == 2
    }
    assert seconds["auto"] < 1.05 * min(seconds.values())


@pytest.mark.parametrize(("code", "left_out"), [("cyclic", 1), ("auto", timing.LEARNT)])
def test_on_processes_the_rounds_count_once_the_learners_are_known(
    code: str, left_out: int
) -> None:
    trained: list[RunConfig] = []

    def train(config: RunConfig) -> list[IterationRecord]:
        trained.append(config)
        seconds = [9.0] * left_out + [0.5] * (config.iterations - left_out)
        return [Mock(round_s=each) for each in seconds]

    setting = Setting(task=wang21.TASKS[0], agents=8, code=code, stragglers=1)
    result = timing.real(setting, rounds=5, train=train).compute()
    assert result == {"seconds": 0.5 * wang21.TOTALLED, "rounds": 4}
    assert (trained[0].code.name, trained[0].learners) == (code, wang21.LEARNERS)


def test_every_code_of_the_figures_is_also_run_on_processes() -> None:
    for scale in SCALES.values():
        assert {"cyclic", "auto"} <= {each.code for each in scale.real}
    assert {each.code for each in PAPER.real} == set(timing.CODES)


def test_the_standard_scale_runs_half_of_the_rows_on_processes_and_beyond_what_mds_tolerates() -> (
    None
):
    rows = {(each.task.name, each.agents) for each in STANDARD.real}
    assert len(rows) >= 4
    assert any(each.stragglers > wang21.LEARNERS - each.agents for each in STANDARD.real)


def test_the_published_numbers_do_not_all_meet_the_claims() -> None:
    verdicts = claims.judge_times(claims.published(), PRINTED)
    yes, no = Held.HELD, Held.NOT_HELD
    assert held(verdicts[:5]) == [yes, no, no, no, yes]
    assert "keep_away, M = 8: uncoded at k = 5 pays 0.80 delays" in verdicts[1].reason


def test_two_observations_of_the_paper_are_refuted_by_its_own_numbers() -> None:
    verdicts = {each.claim[:3]: each for each in claims.judge_times(claims.published(), PRINTED)}
    assert verdicts["(a)"].held is verdicts["(c)"].held is Held.NOT_HELD
    assert "ldpc at k = 1 takes 4.95 s, uncoded 5.73 s" in verdicts["(a)"].reason
    assert "ldpc at k = 2 takes 3.71 s, mds 4.40 s" in verdicts["(c)"].reason
    assert verdicts["(b)"].held is verdicts["(d)"].held is verdicts["(f)"].held is Held.HELD
    assert verdicts["(g)"].held is Held.HELD


def test_the_guideline_for_many_stragglers_contradicts_the_observation_about_them() -> None:
    verdicts = {each.claim[:3]: each for each in claims.judge_times(claims.published(), PRINTED)}
    assert (verdicts["(f)"].held, verdicts["(h)"].held) == (Held.HELD, Held.NOT_HELD)


def test_too_weak_a_test_holds_nothing_but_may_refute() -> None:
    for against, expected in (([], Held.UNDECIDED), (["it fell"], Held.NOT_HELD)):
        verdict = judge("It rises.", against, grounds="it rose", strength=measured(2))
        assert verdict.held is expected
    assert measured(3).best is measured(1, interval=True).best is Held.HELD


def test_a_setting_that_is_new_does_not_count_and_one_that_changed_does(tmp_path: Path) -> None:
    def cell(settings: JSON) -> Cell:
        return Cell(name="a", settings=settings, compute=lambda: {"value": 1})

    run([cell({"run": {"seed": 0}})], tmp_path)
    assert origins([cell({"run": {"seed": 0, "mode": "new"}})], tmp_path) == [CellOrigin.KEPT]
    assert origins([cell({"run": {"seed": 1}})], tmp_path) == [CellOrigin.CHANGED]


def test_equal_results_of_another_scale_are_taken(tmp_path: Path) -> None:
    calls: list[str] = []
    run([counted("a", calls), counted("b", calls)], tmp_path / "standard")
    cells = [counted("a", calls), counted("b", calls, seed=1)]
    found: list[CellOrigin] = []
    run(
        cells,
        tmp_path / "paper",
        done=lambda _, origin: found.append(origin),
        others=[tmp_path / "missing", tmp_path / "standard"],
    )
    assert found == [CellOrigin.KEPT, CellOrigin.COMPUTED]
    assert calls == ["a", "b", "b"]


def test_the_command_computes_the_named_parts_alone_and_refuses_others(tmp_path: Path) -> None:
    command = ["coded-maddpg", "--output", str(tmp_path), "--only"]
    refused = CliRunner().invoke(app, [*command, "fig3, fig9"])
    assert refused.exit_code != 0
    assert "there is no part 'fig9'; the parts are fig3, fig4" in str(refused.exception)
    parts = (ReportPart.FIG3, ReportPart.CODES)
    names = [each.name for each in coded_maddpg.cells(STANDARD, parts, lambda _: [], lambda: 0.0)]
    assert names[0] == decoding_cost.CELL
    assert "physical_deception_one_adversary-centralised-seed1" in names
    assert not any(name.startswith(("compute", "real")) for name in names)


def learnt(panel: wang21.PublishedPanel, values: Sequence[float], *, seeds: int) -> dict[str, JSON]:
    """Runs of a panel whose returns are these points."""
    returns = np.repeat(values, wang21.EVERY).tolist()
    return {f"{panel.name}-centralised-seed{seed}": {"returns": returns} for seed in range(seeds)}


@pytest.mark.parametrize(
    ("off", "seeds", "expected"),
    [(1.02, 3, Held.HELD), (1.04, 3, Held.NOT_HELD), (1.02, 2, Held.UNDECIDED)],
)
def test_a_curve_is_an_authors_within_three_percent_from_500_iterations_on(
    off: float, seeds: int, expected: Held
) -> None:
    panel = wang21.PANELS[1]
    curve = [off * value for value in panel.published["coded"]]
    transient = [-500.0, -300.0, *curve[2:]]
    [verdict] = fig3.judge_published(learnt(panel, transient, seeds=seeds), panel, seeds=seeds)
    assert verdict.held is expected
    assert fig3.judge_published(learnt(panel, curve[:2], seeds=seeds), panel, seeds=seeds) == []


@pytest.mark.parametrize(("off", "expected"), [(1.02, Held.HELD), (1.04, Held.NOT_HELD)])
def test_coded_parameters_learn_alike_within_three_percent_in_every_seed(
    off: float, expected: Held
) -> None:
    panel, budget = wang21.PANELS[0], replace(STANDARD.budget, seeds=3)
    runs = learnt(panel, [-9.0, -8.0, -7.0, -100.0, *[-6.0] * 12], seeds=3)
    for seed in range(3):
        last = -100.0 * (off if seed == 1 else 1.0)
        runs[f"{panel.name}-parameters-seed{seed}"] = {"returns": [last] * budget.payload}
    assert payload.judge_payload(runs, panel, budget).held is expected


@pytest.mark.filterwarnings("ignore:vandermonde")
def test_float32_parameters_lose_digits_by_the_condition_of_the_code() -> None:
    vectors = stream(0, "parameters").normal(size=(8, 1000)).astype(np.float32)
    errors = {}
    for name in ("vandermonde", "mds"):
        rows = make_code(name, rows=wang21.LEARNERS, units=8, seed=0).matrix[:8]
        errors[name] = np.abs(payload.decoded(rows, vectors) - vectors).max()
    assert errors["mds"] < 1e-3
    assert errors["vandermonde"] > 1.0


def test_every_published_point_stands_beside_its_counterpart() -> None:
    panel = wang21.PANELS[0]
    text = fig3.table(learnt(panel, [-1.0] * 16, seeds=2), [panel], seeds=2)
    assert "| 3751 to 4000 | -6750.1 | -1.0 | -1.0 |" in text


def test_peeling_recovers_the_units_and_stops_where_no_row_has_one_unknown() -> None:
    units = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    code = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    peeled = decoding_cost.peel(code, code @ units)
    assert peeled is not None
    assert np.array_equal(peeled, units)
    assert decoding_cost.peel(np.ones((2, 2)), np.ones((2, 1))) is None
    assert np.allclose(decoding_cost.solve(code, code @ units), units)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("claim", "code", "k"),
    [(0, "uncoded", 0), (1, "uncoded", 2), (2, "mds", 1), (4, "replication", 2)],
)
def test_a_time_that_speaks_against_a_claim_is_found(
    virtual: TimeTable, claim: int, code: str, k: int
) -> None:
    key = ("cooperative_navigation", 8, code, k)
    wrong = {**virtual, key: virtual[key] + 2.0}
    verdict = claims.judge_times(wrong, EXACT)[claim]
    assert verdict.held is Held.NOT_HELD
    assert "cooperative_navigation, M = 8" in verdict.reason


def test_what_was_not_run_is_not_judged() -> None:
    few = {key: time for key, time in claims.published().items() if key[2] in ("uncoded", "mds")}
    assert not any(each.claim.startswith("(iv)") for each in claims.judge_times(few, PRINTED))
    assert claims.judge_times({}, PRINTED) == []


def test_one_other_digest_is_enough_against_the_claim_on_learning() -> None:
    panel = wang21.PANELS[0]
    runs: dict[str, JSON] = {
        f"{panel.name}-{code}-seed0": {"digests": ["a", "b"]} for code in ("centralised", "cyclic")
    }
    assert fig3.judge_learning(runs, panel, seeds=1).held is Held.HELD
    runs[f"{panel.name}-cyclic-seed0"] = {"digests": ["a", "c"]}
    assert fig3.judge_learning(runs, panel, seeds=1).held is Held.NOT_HELD


def test_digests_of_another_processor_decide_nothing_unless_they_are_equal() -> None:
    panel = wang21.PANELS[0]
    centralised: JSON = {"digests": ["a", "b"], "computed_on": "one"}
    for digests, held in ((["a", "c"], Held.UNDECIDED), (["a", "b"], Held.HELD)):
        runs = {
            f"{panel.name}-centralised-seed0": centralised,
            f"{panel.name}-cyclic-seed0": {"digests": digests, "computed_on": "another"},
        }
        assert fig3.judge_learning(runs, panel, seeds=1).held is held


def test_the_table_of_probabilities_is_exact() -> None:
    lines = [line.split(" | ") for line in page.probabilities().splitlines()]
    [two] = [line for line in lines if line[0] == "| 2"]
    assert two[1:6] == ["0.800", "0.943", "1.000", "1.000", "1.000"]
