"""The neighbour distance of [DARL1N]: Fig. 6, the contact distance, and halving over fixed ones."""

import dataclasses

import numpy as np
import pytest

from fullrank.common.types import JSON
from fullrank_darl1n import distances
from fullrank_darl1n.distances import halve, rungs_of
from fullrank_darl1n.published import SCALES, Darl1nScale
from fullrank_papers.cells import Results
from fullrank_papers.claims import Held

WHOLE, SMOKE = SCALES["paper"], SCALES["smoke"]


def sweep(*, pace: float, end: float) -> Results:
    """Curves of all distances, the largest of which has another pace and end."""
    found: dict[str, JSON] = {}
    for distance in distances.DISTANCES:
        last = distance == distances.DISTANCES[-1]
        for each in distances.fig6_trials(WHOLE, distance):
            found[each.name] = {
                "iterations": [0, 90],
                "seconds": [0.0, pace if last else 1.0],
                "returns": [0.0, end if last else 1.0],
            }
    return found


def test_more_neighbours_cost_time_and_gain_reward_or_the_claims_do_not_hold() -> None:
    both = distances.judge_distances(sweep(pace=2.0, end=2.0), WHOLE)
    neither = distances.judge_distances(sweep(pace=0.5, end=0.5), WHOLE)
    assert [each.held for each in both] == [Held.HELD] * 2
    assert [each.held for each in neither] == [Held.NOT_HELD] * 2
    short = dataclasses.replace(WHOLE, seeds=(0,))
    verdicts = distances.judge_distances(sweep(pace=2.0, end=2.0), short)
    assert [each.held for each in verdicts] == [Held.UNDECIDED] * 2


def test_the_distance_is_all_that_a_sweep_changes() -> None:
    few, many = (distances.fig6_trials(SMOKE, d)[0] for d in distances.DISTANCES[:2])
    assert {key for key in few.world() if few.world()[key] != many.world()[key]} == {"distance"}
    assert few.adversaries == many.adversaries


def contact(*lost: float) -> Results:
    """Curves that gain 100, with the best fixed distance 200, which the contact distance misses."""
    found: dict[str, JSON] = {}
    for world in distances.WORLDS:
        gained = dict.fromkeys(world.fixed, np.full(3, 100.0))
        gained |= {0.4: np.full(3, 200.0), distances.CONTACT: 200.0 - np.array(lost)}
        for distance, gains in gained.items():
            for each in world.trials(WHOLE, distance):
                found[each.name] = {
                    "iterations": [0, 30, 60, 90],
                    "seconds": [0.0, 1.0, 2.0, 3.0],
                    "returns": [-50.0, 0.0, 0.0, gains[each.seed] - 50.0],
                }
    return found


@pytest.mark.parametrize(
    ("lost", "held"),
    [
        ((1.0, 2.0, 3.0), Held.HELD),
        ((-9.0, -8.0, -7.0), Held.HELD),
        ((8.0, 10.0, 12.0), Held.UNDECIDED),
        ((20.0, 21.0, 22.0), Held.NOT_HELD),
    ],
)
def test_the_contact_distance_is_judged_by_its_share_of_the_best_fixed_gain(
    lost: tuple[float, ...], held: Held
) -> None:
    results = contact(*lost)
    for world in distances.WORLDS:
        found = distances.compared(results, WHOLE, world, beside=["contact"])
        assert found is not None
        assert found.best == 0.4
        assert found.share(distances.CONTACT).mean() == pytest.approx(100 - lost[1] / 2)
    verdicts = distances.judge_contact(results, WHOLE)
    assert [each.held for each in verdicts] == [held] * len(distances.WORLDS)


def test_the_contact_distance_is_judged_in_the_worlds_all_of_whose_runs_are_there() -> None:
    found = contact(1.0, 2.0, 3.0)
    lacking = dict(list(found.items())[:-1])  # of the last world
    verdicts = distances.judge_contact(lacking, WHOLE)
    assert [each.held for each in verdicts] == [Held.HELD, Held.HELD, Held.UNDECIDED]
    assert distances.judge_contact(found, SMOKE) == []


def overtaken(*after: float, scale: Darl1nScale = WHOLE) -> Results:
    """Curves of which that of 0.4 is the worst up to a share of each seed's run, then the best."""
    found: dict[str, JSON] = {}
    for world in distances.WORLDS:
        for distance in (distances.CONTACT, *world.fixed):
            for each in world.trials(scale, distance):
                when = np.arange(0, each.iterations + 1, 30)
                late = np.where(when > after[each.seed] * each.iterations, 50.0 + each.seed, -50.0)
                returns = late if distance == 0.4 else np.minimum(when / 30, 10.0)
                found[each.name] = {
                    "iterations": when.tolist(),
                    "seconds": when.tolist(),
                    "returns": np.where(when > 0, returns, -50.0).tolist(),
                }
    return found


@pytest.mark.parametrize(
    ("after", "alone"),
    [
        ((0.1, 0.1, 0.1), Held.HELD),
        ((0.1, 0.1, 0.4), Held.UNDECIDED),
        ((0.4, 0.4, 0.4), Held.NOT_HELD),
    ],
)
def test_halving_ends_with_the_best_distance_if_it_leads_before_the_first_rung(
    after: tuple[float, ...], alone: Held
) -> None:
    """Rungs are at thirds of a run, or at quarters."""
    results = overtaken(*after)
    for world in distances.WORLDS:
        found = distances.compared(results, WHOLE, world, beside=["contact"])
        assert found is not None
        assert found.best == 0.4
        (own, mean) = (
            distances.halved(found, world, WHOLE, by=by, span=distances.JUDGED)
            for by in distances.WAYS
        )
        cost = 2.0 if len(world.fixed) == 3 else 2.75
        assert own.cost == mean.cost == pytest.approx(cost, abs=0.01)
        assert [distance == 0.4 for distance in own.distances] == [when == 0.1 for when in after]
        assert len(set(mean.distances)) == 1
    verdicts = distances.judge_halving(results, WHOLE)
    assert [each.held for each in verdicts[::2]] == [alone] * len(distances.WORLDS)
    assert distances.halving_table(results, WHOLE).count("\n| ") == 3 * 3


@pytest.mark.parametrize(("after", "held"), [(0.1, Held.HELD), (0.4, Held.NOT_HELD)])
def test_a_choice_by_several_seeds_is_one_sample(after: float, held: Held) -> None:
    one = distances.judge_halving(overtaken(*[after] * 3), WHOLE)[1::2]
    assert [each.held for each in one] == [Held.UNDECIDED] * len(distances.WORLDS)
    many = dataclasses.replace(WHOLE, more_seeds=tuple(range(25)))  # the last one fills no group
    three = distances.judge_halving(overtaken(*[after] * 25, scale=many), many)[1::2]
    assert [each.held for each in three] == [held] * len(distances.WORLDS)
    assert all("over 3 choice(s) by 8 seeds" in each.strength.said for each in three)


def score(candidate: str, rung: int) -> float:
    """Five curves that cross: a leads early, d late, and b never."""
    ends = {"a": 1.0, "b": -1.0, "c": 4.0, "d": 5.0, "e": 4.0}
    return ends[candidate] if rung > 20 else {"a": 9.0, "b": -9.0}.get(candidate, 3.0)


def test_the_better_half_rounded_up_goes_on_and_of_equals_the_first() -> None:
    seen = list[tuple[str, int]]()

    def looked(candidate: str, rung: int) -> float:
        seen.append((candidate, rung))
        return score(candidate, rung)

    winner, cost = halve("abcde", (20, 50, 70), iterations=100, score=looked)
    left = {rung: "".join(each for each, at in seen if at == rung) for rung in (20, 50, 70)}
    assert left == {20: "abcde", 50: "acd", 70: "cd"}
    assert winner == "d"
    assert cost == (5 * 20 + 3 * 30 + 2 * 20 + 30) / 100


@pytest.mark.parametrize(
    ("candidates", "rungs"),
    [
        (2, (500,)),
        (3, (333, 666)),
        (4, (333, 666)),
        (5, (250, 500, 750)),
        (9, (200, 400, 600, 800)),
    ],
)
def test_rungs_are_evenly_spaced_and_leave_one(candidates: int, rungs: tuple[int, ...]) -> None:
    assert rungs_of(candidates, iterations=1000) == rungs
    winner, _ = halve(range(candidates), rungs, iterations=1000, score=lambda each, rung: each)
    assert winner == candidates - 1


def test_distances_of_section_vii_have_more_seeds_than_those_of_fig_6() -> None:
    scale = dataclasses.replace(WHOLE, seeds=(0, 1, 2), more_seeds=(0, 4, 5, 6))
    found = [{each.seed for each in world.trials(scale, 0.1)} for world in distances.WORLDS]
    assert found == [{0, 4, 5, 6}] * 3
    assert {each.seed for each in distances.fig6_trials(scale, 0.1)} == {0, 1, 2}
    as_before = dataclasses.replace(scale, more_seeds=())
    assert {each.seed for each in distances.contact_trials(as_before)} == {0, 1, 2}
