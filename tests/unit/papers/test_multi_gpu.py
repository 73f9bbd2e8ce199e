"""Claims of multi-GPU MADDPG depend on measured numbers alone, and predictions on stated ones."""

from dataclasses import replace

import pytest

from fullrank.algorithms import algorithms
from fullrank.common.types import JSON
from fullrank.config.plugins import spec_of
from fullrank_multi_gpu.claims import judged
from fullrank_multi_gpu.measurements import SCALES, SPLITS, cells, tower
from fullrank_multi_gpu.paper import speed_up
from fullrank_papers.claims import Held

SCALE = replace(
    SCALES["smoke"], agents=(4, 8), ranked_agents=(4, 8), batches=(32, 512), seeds=(0, 1, 2, 3)
)


def results(*, gains: tuple[float, float], shift: float, equal: bool = True) -> dict[str, JSON]:
    """Results in which two ranks gain as given with small and large minibatches."""
    found: dict[str, JSON] = {}
    for cell in cells(SCALE):
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
            begin = -600.0 if "untrained" in cell.name else -500.0 + changed * shift
            found[cell.name] = {"greedy": begin - seed * 0.1, "training": 0.0}
    return found


def held(found: dict[str, JSON]) -> dict[str, Held]:
    return {
        each.claim.split(":")[0]: each.held
        for source in judged(found, SCALE).values()
        for each in source
    }


def test_claims_hold_on_numbers_that_bear_them_out() -> None:
    outcome = held(results(gains=(0.8, 1.6), shift=1.0))
    for claim in ("C1", "C2", "C3", "C4", "C5", "C6 in kind", "C7 in kind", "C8"):
        assert outcome[claim] is Held.HELD, claim
    assert outcome["C6"] is Held.NOT_TESTABLE


def test_claims_do_not_hold_on_numbers_that_contradict_them() -> None:
    outcome = held(results(gains=(1.6, 0.4), shift=-60.0, equal=False))
    for claim in ("C2", "C4", "C5", "C6 in kind", "C7 in kind"):
        assert outcome[claim] is Held.NOT_HELD, claim


def test_the_update_dominates_only_if_it_does_in_every_team() -> None:
    found = results(gains=(0.8, 1.6), shift=1.0)
    found["phases-4"]["play_s"] = 2 * found["phases-4"]["update_s"]
    assert held(found)["C1"] is Held.NOT_HELD


def test_a_gain_within_the_noise_of_ratios_decides_nothing() -> None:
    outcome = held(results(gains=(0.8, 0.75), shift=1.0))
    assert outcome["C6 in kind"] is outcome["C7 in kind"] is Held.UNDECIDED


@pytest.mark.parametrize(("batch", "faster"), [(512, False), (4096, True)])
def test_the_model_of_the_papers_devices_crosses_where_the_paper_does(
    batch: int, *, faster: bool
) -> None:
    config = tower(SCALES["paper"], 32, batch, "algorithm.micro_batches=2")
    problem = algorithms.build("maddpg", **config.algorithm.params).problem(spec_of(config))
    theirs, ours = (speed_up(problem, batch, split) for split in SPLITS)
    assert (theirs > 1) == faster
    assert ours > theirs
