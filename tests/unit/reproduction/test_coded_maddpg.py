"""Cells are computed once; results of claims depend on numbers alone."""

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from fullrank.common.types import JSON
from fullrank.config import RunConfig
from fullrank.runs.record import IterationRecord
from fullrank_reproduction import claims, coded_maddpg, page, timing, wang21
from fullrank_reproduction.cells import Cell, Origin, run
from fullrank_reproduction.claim_results import ClaimResult, Held
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.timing import Setting


def counted(name: str, calls: list[str], *, seed: int = 0) -> Cell:
    def compute() -> JSON:
        calls.append(name)
        return {"value": [len(calls), None]}

    return Cell(name=name, settings={"seed": seed}, compute=compute)


def origins(cells: list[Cell], directory: Path) -> list[Origin]:
    found: list[Origin] = []
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
    assert origins(cells, tmp_path) == [Origin.KEPT, Origin.COMPUTED]


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
    assert origins([cell], tmp_path) == [Origin.DAMAGED]
    assert origins([cell], tmp_path) == [Origin.KEPT]
    assert len(calls) == 2


def test_a_result_of_other_settings_is_computed_again(tmp_path: Path) -> None:
    calls: list[str] = []
    run([counted("a", calls, seed=1)], tmp_path)
    assert origins([counted("a", calls, seed=2)], tmp_path) == [Origin.CHANGED]


def published() -> dict[Setting, float]:
    return {
        each: each.task.published[each.agents][each.code][
            each.task.stragglers.index(each.stragglers)
        ]
        for each in timing.settings(codes=wang21.CODES)
    }


def predicted() -> TimeTable:
    times = {}
    for each in timing.settings(codes=wang21.CODES):
        unit_s, shared_s = timing.published_compute(each.task, each.agents)
        times[each] = timing.simulated(each, unit_s=unit_s, shared_s=shared_s)
    return claims.table(times)


@pytest.fixture(scope="module")
def virtual() -> TimeTable:
    return predicted()


def held(verdicts: list[ClaimResult]) -> list[Held]:
    return [verdict.held for verdict in verdicts]


@pytest.mark.thorough
def test_two_published_cells_predict_all_others(virtual: TimeTable) -> None:
    known = claims.table(published())
    errors = sorted(
        abs(virtual[key] / value - 1.0) for key, value in known.items() if key[0] != "keep_away"
    )
    assert len(errors) == 90
    assert errors[len(errors) // 2] < 0.02
    assert errors[-1] < 0.20


@pytest.mark.thorough
def test_all_claims_on_times_hold_in_virtual_time(virtual: TimeTable) -> None:
    assert held(claims.judge_times(virtual, rounds=timing.ROUNDS)) == [Held.HELD] * 4


@pytest.mark.thorough
def test_the_planner_is_near_the_best_fixed_code() -> None:
    task = wang21.TASKS[1]
    unit_s, shared_s = timing.published_compute(task, 8)
    seconds = {
        each.code: timing.simulated(each, unit_s=unit_s, shared_s=shared_s)
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
    for scale in coded_maddpg.SCALES.values():
        assert {"cyclic", "auto"} <= {each.code for each in scale.real}
    assert {each.code for each in coded_maddpg.PAPER.real} == set(timing.CODES)


def test_the_published_numbers_do_not_all_meet_the_claims() -> None:
    verdicts = claims.judge_times(claims.table(published()), rounds=claims.LEAST_ROUNDS)
    assert held(verdicts) == [Held.HELD, Held.NOT_HELD, Held.NOT_HELD, Held.HELD]
    assert "keep_away, M = 8: uncoded at k = 5 pays 0.80 delays" in verdicts[1].reason


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("claim", "code", "k"), [(0, "uncoded", 0), (1, "uncoded", 2), (2, "mds", 1), (3, "ldpc", 1)]
)
def test_a_time_that_speaks_against_a_claim_is_found(
    virtual: TimeTable, claim: int, code: str, k: int
) -> None:
    key = ("cooperative_navigation", 8, code, k)
    wrong = {**virtual, key: virtual[key] + 2.0}
    verdict = claims.judge_times(wrong, rounds=timing.ROUNDS)[claim]
    assert verdict.held is Held.NOT_HELD
    assert "cooperative_navigation, M = 8" in verdict.reason


@pytest.mark.thorough
def test_what_was_not_run_is_not_testable(virtual: TimeTable) -> None:
    few = claims.judge_times(virtual, rounds=6)
    assert few[3].held is Held.NOT_TESTABLE
    assert held(claims.judge_times({}, rounds=100)) == [Held.NOT_TESTABLE] * 4


def test_one_other_digest_is_enough_against_the_claim_on_learning() -> None:
    task = wang21.TASKS[0]
    runs: dict[str, JSON] = {
        f"{task.name}-{code}-seed0": {"digests": ["a", "b"]} for code in ("centralised", "cyclic")
    }
    assert claims.judge_learning(runs, task, seeds=1).held is Held.HELD
    runs[f"{task.name}-cyclic-seed0"] = {"digests": ["a", "c"]}
    assert claims.judge_learning(runs, task, seeds=1).held is Held.NOT_HELD


def test_the_table_of_probabilities_is_exact() -> None:
    lines = [line.split(" | ") for line in page.probabilities().splitlines()]
    [two] = [line for line in lines if line[0] == "| 2"]
    assert two[1:6] == ["0.800", "0.943", "1.000", "1.000", "1.000"]
