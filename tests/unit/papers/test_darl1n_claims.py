"""Claims of [DARL1N, Sec. VI-A] and rewards of Table VI: held, not held, and undecided."""

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from fullrank.common.types import JSON
from fullrank_darl1n import code_page, distances, learning_claims, paper, table_claims
from fullrank_darl1n.learning_claims import full_range_trials
from fullrank_darl1n.published import FOOD, GRASSLAND, SCALES, TASKS, TIMED, Darl1nScale
from fullrank_darl1n.runs import LearningCurve, learners, mean_curve, seeds
from fullrank_papers.cells import Results
from fullrank_papers.claims import ClaimResult, Held

WHOLE = dataclasses.replace(SCALES["paper"], coded=0, full_range=0, replayed={})

WORSE = [0.0, 90.0, 90.0, 90.0, 90.0, 90.0]
PACES = {"darl1n": 1.0, "maddpg": 2.0, "mfac": 3.0}


def found_with(**returns: list[float]) -> dict[str, JSON]:
    """Runs of all teams."""
    return {
        each.name: points(returns.get(each.method), pace=PACES[each.method])
        for task in TASKS
        for each in learners(WHOLE, task)
    }


def points(returns: list[float] | None, *, pace: float) -> JSON:
    learnt = returns or [0.0, 100.0, 100.0, 100.0, 100.0, 100.0]
    iterations = range(0, 30 * len(learnt), 30)
    seconds = [pace * iteration for iteration in iterations]
    return {"iterations": list(iterations), "seconds": seconds, "returns": learnt}


LATE = [*[0.0, 100.0] * 24, *[100.0] * 6]
NEAR = [0.0, 95.0, 95.0, 95.0, 95.0, 95.0]


@pytest.mark.parametrize(
    ("claim", "good", "bad"),
    [
        (0, {}, {"mfac": WORSE}),
        (1, {}, {"darl1n": LATE}),
        (2, {}, {"darl1n": LATE}),
        (3, {}, {"darl1n": LATE}),
        (4, {"maddpg": WORSE, "mfac": WORSE}, {"darl1n": WORSE}),
        (5, {"maddpg": NEAR}, {"maddpg": [0.0] * 6}),
    ],
)
def test_claims_on_learning_are_judged_by_the_curves(
    claim: int, good: dict[str, list[float]], bad: dict[str, list[float]]
) -> None:
    assert learning_claims.judge_learning(found_with(**good), WHOLE)[claim].held is Held.HELD
    assert learning_claims.judge_learning(found_with(**bad), WHOLE)[claim].held is Held.NOT_HELD


def test_teams_with_the_papers_replay_are_judged_by_it_and_ours_is_shown_beside() -> None:
    scale = dataclasses.replace(WHOLE, replayed={"food_collection": 4})
    worse = {
        each.name: points(WORSE if each.method == "darl1n" else None, pace=1.0)
        for task in TASKS
        for each in learners(scale, task)
    }
    found = found_with(maddpg=WORSE, mfac=WORSE) | {
        name: run for name, run in worse.items() if "-food_collection-" in name and "darl1n" in name
    }
    assert learning_claims.judge_learning(found, scale)[4].held is Held.HELD
    assert "| 24 | darl1n, ours | | " in paper.learning_table(found, scale)
    without = {name: run for name, run in found.items() if "darl1n_replay" not in name}
    assert learning_claims.judge_learning(without, scale)[4].held is Held.UNDECIDED


def test_claims_whose_runs_are_missing_are_undecided() -> None:
    judged = learning_claims.judge_learning({}, WHOLE)[:-1]
    judged += learning_claims.judge_paces({}, WHOLE)
    judged += learning_claims.judge_full_range({}, MORE)
    judged += table_claims.judge_rewards({}, MORE)
    assert {each.held for each in judged} == {Held.UNDECIDED}
    assert paper.learning_table({}, WHOLE) == code_page.rewards_table({}, MORE) == ""


def test_a_seed_counts_when_all_methods_have_it() -> None:
    found = found_with()
    del found["train-ising-9-mfac-seed1"]
    team = WHOLE.teams()[0]
    assert seeds(found, WHOLE, team) == [0, 2]
    assert learning_claims.judge_learning(found, WHOLE)[0].held is Held.UNDECIDED
    assert "Of 3 seeds there are 2 with M = 9." in paper.learning_table(found, WHOLE)


def test_short_runs_of_one_seed_judge_nothing() -> None:
    smoke = dataclasses.replace(WHOLE, sizes=1, iterations=150, seeds=(0,))
    verdicts = learning_claims.judge_learning(found_with(), smoke)[:-1]
    assert {each.held for each in verdicts} == {Held.UNDECIDED}
    assert "one seed" in verdicts[0].reason


def contest_with(leads: Sequence[float], scale: Darl1nScale = WHOLE) -> Results:
    """Curves of the smallest team of Grassland; DARL1N leads by as much at each seed."""
    return {
        each.name: points([0.0, *[-100.0 + leads[each.seed]] * 5], pace=1.0)
        if each.method == "darl1n"
        else points([0.0, *[-100.0] * 5], pace=1.0)
        for each in learners(dataclasses.replace(scale, sizes=1), GRASSLAND)
    }


@pytest.mark.parametrize(
    ("leads", "held"),
    [
        ((1.0, 2.0, 0.0), Held.HELD),
        ((-20.0, -21.0, -20.0), Held.NOT_HELD),
        ((-20.0, 20.0, 0.0), Held.UNDECIDED),
    ],
)
def test_a_side_is_as_good_if_the_interval_of_its_lead_says_so(
    leads: Sequence[float], held: Held
) -> None:
    judged = learning_claims.judge_learning(contest_with(leads), WHOLE)
    (contest,) = [each for each in judged if each.claim.startswith("grassland, M = 6")]
    assert contest.held is held


def test_final_returns_of_some_teams_are_judged_by_more_seeds_than_times() -> None:
    scale = dataclasses.replace(WHOLE, sizes=1, more_ends={"grassland": {"6": [3, 4]}})
    found = contest_with([-20.0, 20.0, 0.0, 20.0, 20.0], scale)

    def judged(results: Results) -> dict[str, ClaimResult]:
        every = learning_claims.judge_learning(results, scale)
        every += learning_claims.judge_paces(results, scale)
        return {each.claim: each for each in every if each.claim.startswith("grassland")}

    ends, *paces = judged(found).values()
    assert "over 5 seeds" in ends.strength.said
    assert all("over 3 seeds" in each.strength.said for each in paces)
    without = {name: run for name, run in found.items() if not name.endswith("seed4")}
    ends, *paces = judged(without).values()
    assert ends.held is Held.UNDECIDED
    assert "for want of seeds" in ends.reason
    assert all("over 3 seeds" in each.strength.said for each in paces)


def test_a_pair_whose_order_the_end_of_a_run_hides_is_censored_and_counted() -> None:
    """DARL1N never settles; a baseline does before DARL1N's run ends, or after."""
    restless = points([0.0, *[0.0, 100.0] * 5], pace=1.0)
    for pace, told in ((0.1, True), (9.0, False)):
        settled = points([0.0, *[100.0] * 10], pace=pace)
        curves = {
            method: [mean_curve([run])] * 3
            for method, run in (("darl1n", restless), ("maddpg", settled), ("mfac", restless))
        }
        parts = learning_claims.sooner(curves, LearningCurve.settled, 1)
        assert parts["mfac"] is None  # neither settles
        assert (parts["maddpg"] is not None) is told
    never = [0.0, *[0.0, 100.0] * 5]
    judged = learning_claims.judge_learning(found_with(darl1n=never, mfac=never), WHOLE)[1]
    assert "32 censored: ising 9 maddpg (+ 31)" in judged.reason


@pytest.mark.parametrize(
    ("own", "base", "leads"),
    [
        ([0.1, 0.1, None], [3.0, 3.0, 3.0], None),  # 261, 261, and at most -30 s
        ([9.0, 9.0, None], [3.0, 3.0, 3.0], [-540.0, -540.0, -30.0]),
        ([3.0, 3.0, 3.0], [0.1, 0.1, None], None),  # -261, -261, and at least 30 s
        ([3.0, 3.0, 3.0], [9.0, 9.0, None], [540.0, 540.0, 30.0]),
        ([9.0, 3.0, None], [3.0, None, 3.0], None),
    ],
)
def test_a_mean_with_bounds_counts_only_where_the_true_one_is_farther_from_zero(
    own: list[float | None], base: list[float | None], leads: list[float] | None
) -> None:
    """Runs settle after 90 iterations, or, of no pace, not in 300 of 1 s."""

    def curves(paces: list[float | None]) -> list[LearningCurve]:
        settled, restless = [0.0, *[100.0] * 10], [0.0, *[0.0, 100.0] * 5]
        return [
            mean_curve([points(settled if pace else restless, pace=pace or 1.0)]) for pace in paces
        ]

    learnt = {"darl1n": curves(own), "maddpg": curves(base)}
    found = learning_claims.sooner(learnt, LearningCurve.settled, 1, others=("maddpg",))["maddpg"]
    assert (None if found is None else found.tolist()) == leads


def test_the_names_of_seeds_change_no_verdict() -> None:
    told = []
    for first in (0, 11):
        scale = dataclasses.replace(MORE, seeds=(first, first + 1, first + 2))
        runs = [each for task in TASKS for each in learners(scale, task)]
        runs += [each for scheme in TIMED for each in table_claims.coded_trials(scale, scheme)]
        runs += [*full_range_trials(scale), *distances.contact_trials(scale)]
        found = {
            each.name: points(
                [0.0, *[50.0 + 7.0 * ((each.seed - first) % 2)] * (each.iterations // 30)], pace=1.0
            )
            for each in runs
        }
        judged = learning_claims.judge_learning(found, scale)
        judged += learning_claims.judge_full_range(found, scale)
        judged += table_claims.judge_rewards(found, scale)
        judged += distances.judge_contact(found, scale) + distances.judge_halving(found, scale)
        told.append([(each.claim, each.held, each.reason) for each in judged])
        assert paper.learning_table(found, scale)
        assert code_page.rewards_table(found, scale)
    assert told[0] == told[1]


def test_an_iteration_counts_as_a_learner_s_part_and_as_a_whole() -> None:
    apart, whole = learning_claims.judge_paces(found_with(), WHOLE)[:2]
    slow = {
        name: {**run, "seconds": [20.0 * second for second in run["seconds"]]}
        for name, run in found_with().items()
        if "darl1n" in name
    }
    slower = learning_claims.judge_paces(found_with() | slow, WHOLE)
    assert (apart.held, whole.held) == (Held.HELD, Held.HELD)  # 1 s an iteration against 2 s
    assert (slower[0].held, slower[1].held) == (Held.NOT_HELD, Held.NOT_HELD)


MORE = dataclasses.replace(WHOLE, coded=100, full_range=100)


def fuller_range(ends: Sequence[float], *, pace: float) -> Results:
    near = {each.name: points(None, pace=1.0) for each in learners(MORE, FOOD)}
    return near | {
        each.name: points([0.0, *[ends[each.seed]] * 5], pace=pace)
        for each in full_range_trials(MORE)
    }


def test_the_full_range_is_compared_seed_by_seed() -> None:
    lower = learning_claims.judge_full_range(fuller_range([50.0, 60.0, 55.0], pace=2.0), MORE)
    higher = learning_claims.judge_full_range(fuller_range([150.0, 160.0, 155.0], pace=0.5), MORE)
    mixed = learning_claims.judge_full_range(fuller_range([50.0, 160.0, 95.0], pace=1.0), MORE)
    assert [each.held for each in lower] == [Held.HELD] * 2
    assert [each.held for each in higher] == [Held.NOT_HELD] * 2
    assert mixed[0].held is Held.UNDECIDED


def coded_with(shares: Mapping[str, Sequence[float]]) -> Results:
    """Runs that begin at -200 and gain these shares of 100."""
    return {
        each.name: points(
            [-200.0, *[-200.0 + 100.0 * shares[scheme.name][each.seed]] * 5], pace=1.0
        )
        for scheme in TIMED
        for each in table_claims.coded_trials(MORE, scheme)
    }


def test_codes_are_compared_with_the_uncoded_scheme_seed_by_seed() -> None:
    none, little, whole, any_ = (0.0,) * 3, (0.1, 0.12, 0.1), (1.1, 1.11, 1.1), (0.0, 1.9, 1.0)
    names = [scheme.name for scheme in TIMED]
    as_published = dict(zip(names, ((1.0,) * 3, none, little, whole, whole), strict=True))
    reverse = dict(zip(names, ((1.0,) * 3, whole, whole, none, little), strict=True))
    doubtful = dict(zip(names, ((1.0,) * 3, any_, any_, any_, any_), strict=True))
    for shares, held in (
        (as_published, Held.HELD),
        (reverse, Held.NOT_HELD),
        (doubtful, Held.UNDECIDED),
    ):
        judged = table_claims.judge_rewards(coded_with(shares), MORE)
        assert [each.held for each in judged] == [held] * 4
    page = code_page.rewards_table(coded_with(as_published), MORE)
    assert "| mds | -231 / -253 / -212 | -200.0 | -200 / -200 / -200 | 0% |" in page
