"""Results of the claims of [Wang21] depend on numbers alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from fullrank.codes import make_code
from fullrank.common.seeding import stream
from fullrank.common.types import JSON
from fullrank.config import RunConfig
from fullrank.runs.record import IterationRecord
from fullrank_coded_maddpg import curves, decoding, learning, time_claims, timing
from fullrank_coded_maddpg.paper import PAPER, PAPERS, PUBLISHED, agreement, predicted
from fullrank_coded_maddpg.published import (
    EVERY,
    LEARNERS,
    PANELS,
    SCALES,
    TASKS,
    TOTALLED,
    PublishedPanel,
)
from fullrank_coded_maddpg.time_claims import TimeTable
from fullrank_coded_maddpg.timing import Setting
from fullrank_papers.cells import CellStore, gather
from fullrank_papers.claims import EXACT, PRINTED, ClaimResult, Held

ROW = ("cooperative_navigation", 8)
NAVIGATION, PREY = TASKS["cooperative_navigation"], TASKS["predator_prey"]
STANDARD = SCALES["standard"]
COMMITTED = Path(__file__).resolve().parents[3] / "papers" / PAPER.folder / "standard"


@pytest.fixture(scope="module")
def virtual() -> TimeTable:
    """The committed times of the paper's machines."""
    planned = timing.predicted_cells()
    names = {cell.name for cell in planned}
    found = gather(planned, CellStore(COMMITTED), chosen=())
    assert found.keys() == {name for name in names if "scaled" not in name}
    return predicted(found, "paper")


def test_both_models_of_the_papers_machines_are_compared_over_the_same_cells() -> None:
    found = gather(timing.predicted_cells(), CellStore(COMMITTED), chosen=())
    tables = {PAPERS: predicted(found, "paper"), PUBLISHED: time_claims.published()}
    told = agreement(tables, found)
    counts = [int(line.split("|")[2]) for line in told.splitlines() if "%" in line]
    assert counts == [96, 72, 30, 6] * 2


def held(verdicts: list[ClaimResult]) -> list[Held]:
    return [verdict.held for verdict in verdicts]


def test_all_claims_on_times_hold_in_virtual_time(virtual: TimeTable) -> None:
    assert held(time_claims.judge_times(virtual, EXACT)[:5]) == [Held.HELD] * 5


@pytest.mark.parametrize(("code", "left_out"), [("cyclic", 1), ("auto", timing.LEARNT)])
def test_on_processes_the_rounds_count_once_the_learners_are_known(
    code: str, left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[RunConfig] = []

    def observe(config: RunConfig) -> list[tuple[float, IterationRecord]]:
        trained.append(config)
        seconds = [9.0] * left_out + [0.5] * (config.iterations - left_out)
        return [(0.0, Mock(round_s=each)) for each in seconds]

    monkeypatch.setattr(timing, "observe", observe)
    setting = Setting(task=NAVIGATION, agents=8, code=code, stragglers=1)
    assert timing.real_cell(setting, 5).compute() == {"seconds": 0.5 * TOTALLED, "rounds": 4}
    assert (trained[0].code.name, trained[0].learners) == (code, LEARNERS)


def test_the_published_numbers_do_not_all_meet_the_claims() -> None:
    verdicts = time_claims.judge_times(time_claims.published(), PRINTED)
    yes, no = Held.HELD, Held.NOT_HELD
    assert held(verdicts[:5]) == [yes, no, no, no, yes]
    assert verdicts[1].reason.startswith("cooperative_navigation 8: uncoded at k = 1 pays 0.85 ")


def test_the_papers_own_numbers_refute_two_observations_and_a_guideline() -> None:
    judged = time_claims.judge_times(time_claims.published(), PRINTED)
    verdicts = {each.claim[:3]: each for each in judged}
    assert verdicts["(a)"].held is verdicts["(c)"].held is Held.NOT_HELD
    assert "replication at k = 1 takes 5.2 s, uncoded 5.73 s (+ 4)" in verdicts["(a)"].reason
    assert "ldpc at k = 2 takes 3.71 s, mds 4.4 s" in verdicts["(c)"].reason
    assert verdicts["(b)"].held is verdicts["(d)"].held is verdicts["(f)"].held is Held.HELD
    assert (verdicts["(g)"].held, verdicts["(h)"].held) == (Held.HELD, Held.NOT_HELD)


@pytest.mark.parametrize(("delay", "small", "large"), [(0.1, 1, 0), (1.0, 0, 1), (30.0, 0, 0)])
def test_a_claim_on_small_or_large_effects_is_judged_where_the_delay_is_so_many_iterations(
    delay: float, small: int, large: int
) -> None:
    """An uncoded iteration takes 0.934 s, and the paper's delay is 0.25 s."""
    times = {key: time for key, time in time_claims.published().items() if key[:2] == ROW}
    machines = {ROW: time_claims.RowMachines(slower=delay / 0.25)}
    judged = time_claims.judge_times(times, PRINTED, machines)
    tested = {each.claim[:3]: each.held is not Held.NOT_TESTABLE for each in judged}
    assert (tested["(a)"], tested["(d)"]) == (small, small)
    assert (tested["(b)"], tested["(c)"], tested["(g)"]) == (large, large, large)


def test_dense_codes_whose_rows_differ_do_not_test_what_equal_rows_pay() -> None:
    row = ("physical_deception", 8)
    times = {key: time for key, time in time_claims.published().items() if key[:2] == row}
    for unit_s, held in ((0.0, Held.HELD), (0.05, Held.NOT_TESTABLE)):
        judged = time_claims.judge_times(times, PRINTED, {row: time_claims.RowMachines(unit_s)})
        (paid,) = [each for each in judged if "Beyond" in each.claim]
        assert paid.held is held


def test_delays_on_processes_are_as_many_times_the_papers_as_units() -> None:
    for setting in timing.real_settings(STANDARD):
        unit_s = timing.published_machines(setting.task, setting.agents).unit_s
        run = timing.real_cell(setting, 5).settings["run"]
        delay_s = run["stragglers"]["delay_s"]
        assert delay_s / setting.task.delay_s == pytest.approx(timing.EMULATED_UNIT_S / unit_s)


SEEDS = (0, 1, 2)


def learnt(panel: PublishedPanel, values: Sequence[float]) -> dict[str, JSON]:
    """Runs of a panel whose returns begin at -200 and are these points, with little noise."""
    returns = np.repeat(values, EVERY)
    returns[:3] = -200.0
    return {
        f"{panel.name}-centralised-seed{seed}": {"returns": (returns + 0.01 * seed).tolist()}
        for seed in SEEDS
    }


def test_a_constant_line_is_no_authors_curve_and_their_own_curve_is() -> None:
    panel = PANELS["keep_away"]
    curve = list(panel.published["centralised"])
    near = [value + 2.0 for value in curve]
    line, far = [float(np.mean(curve[2:]))] * len(curve), [value - 9.0 for value in curve]
    for values, expected in (
        *((curve, Held.HELD), (near, Held.HELD)),
        *((line, Held.NOT_HELD), (far, Held.NOT_HELD)),
    ):
        [verdict] = curves.judge_published(learnt(panel, values), panel, seeds=SEEDS)
        assert verdict.held is expected
    assert curves.judge_published(learnt(panel, curve[:0]), panel, seeds=SEEDS) == []


@pytest.mark.parametrize(("off", "expected"), [(2.0, Held.HELD), (9.0, Held.NOT_HELD)])
def test_coded_parameters_learn_alike_within_three_percent_of_the_gain(
    off: float, expected: Held
) -> None:
    panel, scale = PANELS["cooperative_navigation"], replace(STANDARD, seeds=SEEDS)
    runs = learnt(panel, [-100.0] * 4)
    for seed in SEEDS:
        last = -100.0 - off + 0.1 * seed
        runs[f"{panel.name}-parameters-seed{seed}"] = {"returns": [last] * scale.payload}
    assert curves.judge_payload(runs, panel, scale).held is expected


@pytest.mark.filterwarnings("ignore:vandermonde")
def test_float32_parameters_lose_digits_by_the_condition_of_the_code() -> None:
    vectors = stream(0, "parameters").normal(size=(8, 1000)).astype(np.float32)
    errors = {}
    for name in ("vandermonde", "mds"):
        rows = make_code(name, rows=LEARNERS, units=8, seed=0).matrix[:8]
        errors[name] = np.abs(learning.decoded(rows, vectors) - vectors).max()
    assert errors["mds"] < 1e-3
    assert errors["vandermonde"] > 1.0


def test_peeling_recovers_the_units_and_stops_where_no_row_has_one_unknown() -> None:
    units = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    code = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    peeled = decoding.peel(code, code @ units)
    assert peeled is not None
    assert np.array_equal(peeled, units)
    assert decoding.peel(np.ones((2, 2)), np.ones((2, 1))) is None
    assert np.allclose(decoding.solve(code, code @ units), units)


@pytest.mark.parametrize(
    ("claim", "code", "k"),
    [(0, "uncoded", 0), (1, "uncoded", 2), (2, "mds", 1), (4, "replication", 2)],
)
def test_a_time_that_speaks_against_a_claim_is_found(
    virtual: TimeTable, claim: int, code: str, k: int
) -> None:
    key = ("cooperative_navigation", 8, code, k)
    wrong = {**virtual, key: virtual[key] + 2.0}
    verdict = time_claims.judge_times(wrong, EXACT)[claim]
    assert verdict.held is Held.NOT_HELD
    assert "cooperative_navigation 8" in verdict.reason


def test_one_other_digest_is_enough_against_the_claim_on_learning() -> None:
    panel = PANELS["cooperative_navigation"]
    runs: dict[str, JSON] = {
        f"{panel.name}-{code}-seed0": {"digests": ["a", "b"]} for code in ("centralised", "cyclic")
    }
    assert curves.judge_learning(runs, panel, seeds=(0,)).held is Held.HELD
    runs[f"{panel.name}-cyclic-seed0"] = {"digests": ["a", "c"]}
    assert curves.judge_learning(runs, panel, seeds=(0,)).held is Held.NOT_HELD


def test_digests_of_another_processor_decide_nothing_unless_they_are_equal() -> None:
    panel = PANELS["cooperative_navigation"]
    centralised: JSON = {"digests": ["a", "b"], "computed_on": "one"}
    for digests, held in ((["a", "c"], Held.UNDECIDED), (["a", "b"], Held.HELD)):
        runs = {
            f"{panel.name}-centralised-seed0": centralised,
            f"{panel.name}-cyclic-seed0": {"digests": digests, "computed_on": "another"},
        }
        assert curves.judge_learning(runs, panel, seeds=(0,)).held is held
