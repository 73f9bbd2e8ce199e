"""Claims of multi-GPU MADDPG depend on measured numbers alone, and predictions on stated ones."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from fullrank.algorithms import algorithms
from fullrank.common.types import JSON
from fullrank.config.plugins import spec_of
from fullrank_reproduction.claim_results import Held
from fullrank_reproduction.multi_gpu import experiment, report
from fullrank_reproduction.multi_gpu.claims import differences, judged
from fullrank_reproduction.multi_gpu.measurements import VARIANTS, cells, tower
from fullrank_reproduction.multi_gpu.prediction import PAPERS, flop_of, speed_up

BUDGET = replace(
    experiment.SMOKE.budget, agents=(4, 8), ranked_agents=(4, 8), batches=(32, 512), seeds=4
)


def results(*, gains: tuple[float, float], shift: float, equal: bool = True) -> dict[str, JSON]:
    """Results in which two ranks gain as given with small and large minibatches."""
    found: dict[str, JSON] = {}
    for cell in cells(BUDGET, time.process_time):
        kind, _, rest = cell.name.partition("-")
        if kind == "phases":
            agents = int(rest)
            found[cell.name] = {"play_s": 0.04, "wide_play_s": 0.002, "update_s": 0.02 * agents}
        elif kind == "curve":
            found[cell.name] = {"update_s": 0.001 * int(rest.split("-")[1])}
        elif kind == "ranks":
            _, agents, batch = map(int, rest.split("-"))
            gain = gains[batch > 32] * (1 + agents / 16)
            shares = {
                split: {"busiest_s": 1 / gain, "bytes": 8.0, "formula": 8.0, "equal": equal}
                for split in ("transitions", "agents")
            }
            found[cell.name] = {"one_s": 1.0, **shares}
        else:
            changed = "one-batch" not in cell.name
            seed = int(cell.name.rpartition("-")[2])
            found[cell.name] = {"greedy": -500.0 - seed * 0.1 + changed * shift, "training": 0.0}
    return found


def held(found: dict[str, JSON]) -> dict[str, Held]:
    return {
        each.claim.split(":")[0]: each.held
        for source in judged(found, BUDGET).values()
        for each in source
    }


def test_claims_hold_on_numbers_that_bear_them_out() -> None:
    outcome = held(results(gains=(0.8, 1.6), shift=1.0))
    for claim in ("C1", "C2", "C3", "C4", "C5", "C6 in kind", "C7 in kind", "C8"):
        assert outcome[claim] is Held.HELD, claim
    assert outcome["C6"] is Held.NOT_TESTABLE


def test_claims_do_not_hold_on_numbers_that_contradict_them() -> None:
    outcome = held(results(gains=(1.6, 0.8), shift=-60.0, equal=False))
    for claim in ("C2", "C4", "C5", "C6 in kind", "C7 in kind"):
        assert outcome[claim] is Held.NOT_HELD, claim


def test_a_ratio_that_rises_by_less_than_its_noise_decides_nothing() -> None:
    found = results(gains=(0.4, 0.4), shift=0.0)
    assert held(found)["C8"] is Held.UNDECIDED


def test_a_difference_is_relative_to_the_return_seed_by_seed() -> None:
    found = differences(results(gains=(1.0, 1.0), shift=5.0), BUDGET, "navigation", "lag 1")
    assert found.mean == pytest.approx(0.01, rel=1e-3)
    assert found.high - found.low < 1e-6


@pytest.mark.parametrize(("batch", "faster"), [(512, False), (4096, True)])
def test_the_model_of_the_papers_devices_crosses_where_the_paper_does(
    batch: int, *, faster: bool
) -> None:
    sized = replace(BUDGET, hidden=1024)
    config = tower(sized, 32, batch, "algorithm.micro_batches=2")
    problem = algorithms.build("maddpg", **config.algorithm.params).problem(spec_of(config))
    curve = PAPERS.curve(flop_of(problem))
    theirs, ours = (
        speed_up(curve, problem, batch, split, PAPERS.bandwidth, exact=False)
        for split in ("transitions", "agents")
    )
    assert (theirs > 1) == faster
    assert ours > theirs


def test_the_page_has_claims_tables_and_pictures(tmp_path: Path) -> None:
    """Results are given; ``fullrank reproduce multi-gpu`` computes them."""
    found = results(gains=(0.8, 1.6), shift=1.0)
    report.draw_phases(found, BUDGET, tmp_path / "phases.png")
    report.draw_ranks(found, BUDGET, tmp_path / "ranks.png")
    report.draw_learning(found, BUDGET, tmp_path / "learning.png")
    page = experiment.page(replace(experiment.SMOKE, budget=BUDGET), found)
    for heading in ("## Claims", "## Phases", "## Two ranks", "## Two devices", "## Lag"):
        assert heading in page
    assert all(variant in page for variant in VARIANTS)
    for picture in tmp_path.glob("*.png"):
        assert f"({picture.name})" in page
