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
from fullrank_coded_maddpg.paper import PAPER, predicted
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
from fullrank_papers.claims import EXACT, PRINTED, ClaimResult, Held, judge, measured

NAVIGATION, PREY = TASKS["cooperative_navigation"], TASKS["predator_prey"]
STANDARD = SCALES["standard"]
COMMITTED = Path(__file__).resolve().parents[3] / "papers" / PAPER.folder / "standard"


@pytest.fixture(scope="module")
def virtual() -> TimeTable:
    """The committed times of the paper's machines."""
    planned = timing.predicted_cells()
    names = {cell.name for cell in planned}
    found = gather(planned, CellStore(COMMITTED), chosen=())
    assert found.keys() == {name for name in names if "here" not in name}
    return predicted(found, "paper")


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
    assert "keep_away, M = 8: uncoded at k = 5 pays 0.80 delays" in verdicts[1].reason


def test_the_papers_own_numbers_refute_two_observations_and_a_guideline() -> None:
    judged = time_claims.judge_times(time_claims.published(), PRINTED)
    verdicts = {each.claim[:3]: each for each in judged}
    assert verdicts["(a)"].held is verdicts["(c)"].held is Held.NOT_HELD
    assert "ldpc at k = 1 takes 4.95 s, uncoded 5.73 s" in verdicts["(a)"].reason
    assert "ldpc at k = 2 takes 3.71 s, mds 4.40 s" in verdicts["(c)"].reason
    assert verdicts["(b)"].held is verdicts["(d)"].held is verdicts["(f)"].held is Held.HELD
    assert (verdicts["(g)"].held, verdicts["(h)"].held) == (Held.HELD, Held.NOT_HELD)


def test_too_weak_a_test_holds_nothing_but_may_refute() -> None:
    for against, expected in (([], Held.UNDECIDED), (["it fell"], Held.NOT_HELD)):
        verdict = judge("It rises.", against, grounds="it rose", strength=measured(2))
        assert verdict.held is expected
    assert measured(3).best is measured(1, interval=True).best is Held.HELD


def learnt(panel: PublishedPanel, values: Sequence[float], *, seeds: int) -> dict[str, JSON]:
    """Runs of a panel whose returns are these points."""
    returns = np.repeat(values, EVERY).tolist()
    return {f"{panel.name}-centralised-seed{seed}": {"returns": returns} for seed in range(seeds)}


@pytest.mark.parametrize(
    ("off", "seeds", "expected"),
    [(1.02, 3, Held.HELD), (1.04, 3, Held.NOT_HELD), (1.02, 2, Held.UNDECIDED)],
)
def test_a_curve_is_an_authors_within_three_percent_from_500_iterations_on(
    off: float, seeds: int, expected: Held
) -> None:
    panel = PANELS["keep_away"]
    curve = [off * value for value in panel.published["coded"]]
    transient = [-500.0, -300.0, *curve[2:]]
    [verdict] = curves.judge_published(learnt(panel, transient, seeds=seeds), panel, seeds=seeds)
    assert verdict.held is expected
    assert curves.judge_published(learnt(panel, curve[:2], seeds=seeds), panel, seeds=seeds) == []


@pytest.mark.parametrize(("off", "expected"), [(1.02, Held.HELD), (1.04, Held.NOT_HELD)])
def test_coded_parameters_learn_alike_within_three_percent_in_every_seed(
    off: float, expected: Held
) -> None:
    panel, scale = PANELS["cooperative_navigation"], replace(STANDARD, seeds=3)
    runs = learnt(panel, [-9.0, -8.0, -7.0, -100.0, *[-6.0] * 12], seeds=3)
    for seed in range(3):
        last = -100.0 * (off if seed == 1 else 1.0)
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
    assert "cooperative_navigation, M = 8" in verdict.reason


def test_one_other_digest_is_enough_against_the_claim_on_learning() -> None:
    panel = PANELS["cooperative_navigation"]
    runs: dict[str, JSON] = {
        f"{panel.name}-{code}-seed0": {"digests": ["a", "b"]} for code in ("centralised", "cyclic")
    }
    assert curves.judge_learning(runs, panel, seeds=1).held is Held.HELD
    runs[f"{panel.name}-cyclic-seed0"] = {"digests": ["a", "c"]}
    assert curves.judge_learning(runs, panel, seeds=1).held is Held.NOT_HELD


def test_digests_of_another_processor_decide_nothing_unless_they_are_equal() -> None:
    panel = PANELS["cooperative_navigation"]
    centralised: JSON = {"digests": ["a", "b"], "computed_on": "one"}
    for digests, held in ((["a", "c"], Held.UNDECIDED), (["a", "b"], Held.HELD)):
        runs = {
            f"{panel.name}-centralised-seed0": centralised,
            f"{panel.name}-cyclic-seed0": {"digests": digests, "computed_on": "another"},
        }
        assert curves.judge_learning(runs, panel, seeds=1).held is held
