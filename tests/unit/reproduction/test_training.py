"""Tables I to IV of [DARL1N]: frozen adversaries, curves, and results of claims."""

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fullrank.common.seeding import derive
from fullrank.common.types import JSON
from fullrank.config.tree import as_tables
from fullrank.training.evaluation import Greedy
from fullrank.wiring import training_of
from fullrank_reproduction.baselines.epc.population import train
from fullrank_reproduction.cells import Cell, CellOrigin, run
from fullrank_reproduction.claim_results import Held
from fullrank_reproduction.darl1n.published import MDS, TIMED
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import (
    claims,
    coded_rewards,
    crossplay,
    epc_claims,
    epc_runs,
    full_range,
    neighbour_distance,
    rankings,
    tables,
    wireless,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import (
    LearningCurve,
    fixed_return,
    mean_curve,
)
from fullrank_reproduction.darl1n.training.crossplay import PLAYED
from fullrank_reproduction.darl1n.training.policies import policies_of, seat
from fullrank_reproduction.darl1n.training.published import FOOD, GRASSLAND, ISING, TASKS
from fullrank_reproduction.darl1n.training.runs import adversaries, learners, seeds, teams
from fullrank_reproduction.darl1n.training.trials import Trial, adversaries_in

TINY = Darl1nBudget(
    sizes=1, iterations=2, every=1, batch=16, seeds=1, timed=1, draws=1, episodes=80
)
WHOLE = Darl1nBudget(
    sizes=4, iterations=3_000, every=30, batch=1_024, seeds=3, timed=3, draws=5, episodes=2_000
)


def trial(**changes: object) -> Trial:
    made = Trial(task=GRASSLAND, size=GRASSLAND.sizes[0], method="darl1n", budget=TINY)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sides() -> Results:
    before = trial().adversaries
    assert before is not None
    return {before.name: before.cell({}, time.process_time).compute()}


def without_seconds(result: JSON) -> JSON:
    return {key: value for key, value in result.items() if key != "seconds"}


def test_a_curve_begins_untrained_and_is_a_function_of_its_settings(sides: Results) -> None:
    cell = trial().cell(sides, time.process_time)
    first, second = cell.compute(), cell.compute()
    assert first["iterations"] == [0, 1, 2]
    assert without_seconds(first) == without_seconds(second)
    assert first["seconds"][0] == 0.0
    assert np.all(np.diff(first["seconds"]) > 0)


def test_adversaries_play_what_they_learnt_before_and_learn_no_more(sides: Results) -> None:
    before = trial().adversaries
    assert before is not None
    learnt = adversaries_in(sides[before.name])
    assert list(learnt) == [0, 1, 2]
    algorithm = training_of(trial().config()).algorithm
    own = policies_of(algorithm, range(6))
    seat(algorithm, learnt)
    assert policies_of(algorithm, range(6)) == [*learnt.values(), *own[3:]]
    targets = {
        each.owner: each.id for each in algorithm.problem.sections if each.role == "target_policy"
    }
    online = {each.owner: each.id for each in algorithm.problem.sections if each.role == "policy"}
    for unit in learnt:
        assert np.array_equal(
            algorithm.parameters.view(targets[unit]), algorithm.parameters.view(online[unit])
        )


def test_other_adversaries_make_another_run(sides: Results, tmp_path: Path) -> None:
    (name,) = sides
    other = {name: {**sides[name], "policies": sides[name]["policies"][::-1]}}
    cells = [trial().cell(found, time.process_time) for found in (sides, other)]
    origins: list[CellOrigin] = []
    for cell in cells:
        quick = Cell(name=cell.name, settings=cell.settings, compute=dict)
        run([quick], tmp_path, done=lambda _, origin: origins.append(origin))
    assert origins == [CellOrigin.COMPUTED, CellOrigin.CHANGED]


def test_each_method_sees_as_far_as_in_the_paper_and_all_are_evaluated_alike() -> None:
    near, far = (trial(method=method) for method in ("darl1n", "mfac"))
    assert "distance" not in near.world()
    assert far.world()["distance"] > 10.0
    for each in (near, far):
        assert each.evaluated()["extra_step"]
        assert not each.evaluated()["moving_start"]


def test_adversaries_learn_from_other_draws_than_those_whom_they_meet() -> None:
    before = trial(method="maddpg").adversaries
    assert before is not None
    assert before.config().seed != trial(method="maddpg").config().seed


def test_names_of_runs_are_unique_and_contests_have_adversaries() -> None:
    trained = [each for task in TASKS for each in learners(WHOLE, task)]
    names = [each.name for each in (*trained, *adversaries(trained))]
    assert len(names) == len(set(names)) == 16 * 3 * 3 + 8 * 3
    assert len(teams(WHOLE)) == 16


def curve(returns: list[float], *, every: int = 30) -> LearningCurve:
    iterations = every * np.arange(len(returns), dtype=float)
    return LearningCurve(iterations=iterations, seconds=2.0 * iterations, returns=np.array(returns))


def test_a_run_has_settled_when_ninety_iterations_vary_by_little() -> None:
    assert curve([0.0, 50.0, 100.0, 101.0, 100.0]).settled() == 4
    assert curve([100.0, 100.0, 100.0]).settled() is None  # there are no ninety iterations yet
    assert curve([0.0, 50.0, 100.0, 150.0]).settled() is None
    assert curve([100.0, 0.0, 0.0, 0.0]).settled() == 3  # a constantly low return has settled


def test_the_criterion_depends_on_the_unit_of_rewards() -> None:
    shape = np.array([10.0, 10.3, 9.8, 10.2, 9.9])
    assert curve(list(shape)).settled() is not None
    assert curve(list(100.0 * shape)).settled() is None


def test_the_fixed_return_lies_nine_tenths_up_from_the_lowest_beginning_to_the_best_end() -> None:
    level = fixed_return([curve([0.0, 0.0, 100.0, 100.0, 100.0]), curve([20.0, 30.0, 30.0, 30.0])])
    assert level == pytest.approx(0.9 * 100.0)
    assert curve([0.0, 99.0, 80.0, 96.0, 98.0]).reached(level) == 3
    assert curve([0.0, 99.0, 0.0, 99.0]).reached(level) is None
    assert curve([99.0, 99.0]).reached(level) is None
    assert math.isinf(curve([0.0]).second(None))


def sweep(*, pace: float, end: float) -> Results:
    """Curves of all distances, the largest of which has another pace and end."""
    found: dict[str, JSON] = {}
    for distance in neighbour_distance.DISTANCES:
        last = distance == neighbour_distance.DISTANCES[-1]
        for each in neighbour_distance.trials(WHOLE, distance):
            found[each.name] = {
                "iterations": [0, 90],
                "seconds": [0.0, pace if last else 1.0],
                "returns": [0.0, end if last else 1.0],
            }
    return found


def test_more_neighbours_cost_time_and_gain_reward_or_the_claims_do_not_hold() -> None:
    both = neighbour_distance.judge_distances(sweep(pace=2.0, end=2.0), WHOLE)
    neither = neighbour_distance.judge_distances(sweep(pace=0.5, end=0.5), WHOLE)
    assert [each.held for each in both] == [Held.HELD] * 2
    assert [each.held for each in neither] == [Held.NOT_HELD] * 2
    short = dataclasses.replace(WHOLE, seeds=1)
    verdicts = neighbour_distance.judge_distances(sweep(pace=2.0, end=2.0), short)
    assert [each.held for each in verdicts] == [Held.UNDECIDED, Held.NOT_TESTABLE]


def test_the_distance_is_all_that_a_sweep_changes() -> None:
    few, many = (neighbour_distance.trials(TINY, d)[0] for d in neighbour_distance.DISTANCES[:2])
    assert {key for key in few.world() if few.world()[key] != many.world()[key]} == {"distance"}
    assert few.adversaries == many.adversaries


def draws_with(leads: Sequence[float]) -> Results:
    """Returns of SAC and DARL1N on each draw, alike for both z except for the sign."""
    found: dict[str, JSON] = {}
    for deadline, sign in zip(wireless.DEADLINES, (-1.0, 1.0), strict=True):
        for draw, gain in enumerate(leads):
            name = f"wireless-z{deadline}-{{}}-draw{draw}"
            found[name.format("sac")] = {"return": 10.0 * draw, "random": 1.0, "seconds": 2.0}
            found[name.format("darl1n")] = {"return": 10.0 * draw + sign * gain, "seconds": 3.0}
    return found


def test_methods_are_compared_on_the_same_draws() -> None:
    clear = wireless.judge_wireless(draws_with([1.0, 2.0, 1.0, 2.0, 1.0]), WHOLE)
    doubtful = wireless.judge_wireless(draws_with([1.0, -2.0, 1.0, 2.0, -1.0]), WHOLE)
    few = wireless.judge_wireless(draws_with([1.0]), dataclasses.replace(WHOLE, draws=1))
    assert [each.held for each in clear] == [Held.HELD] * 2
    assert [each.held for each in doubtful] == [Held.NOT_HELD] * 2
    assert [each.held for each in few] == [Held.NOT_TESTABLE] * 2


@pytest.mark.thorough
def test_both_methods_learn_in_the_same_wireless_world() -> None:
    sac, own = wireless.cells(TINY, time.process_time)[:2]
    assert sac.settings["world"].items() <= own.settings["run"]["environment"].items()
    results = [each.compute() for each in (sac, own)]
    assert all(each["return"] >= 0.0 and each["seconds"] > 0.0 for each in results)
    assert [each["episodes"] for each in results] == [[20.0, 60.0], [0, 40]]
    assert all(len(each["returns"]) == 2 for each in results)


def test_both_methods_learn_from_equally_many_transitions() -> None:
    sac, own = wireless.cells(WHOLE, time.process_time)[:2]
    run = own.settings["run"]
    sampled = run["iterations"] * run["algorithm"]["batch_size"] * run["environment"]["agents"]
    assert sampled == sac.settings["episodes"] * wireless.USERS * 25


def games(good: Mapping[str, float], adversary: Mapping[str, float]) -> Results:
    """Returns of a side that depend only on the method that trained it."""
    return {
        crossplay.CELL: {
            "good": {own: {other: [good[own]] for other in PLAYED} for own in PLAYED},
            "adversary": {own: {other: [adversary[other]] for other in PLAYED} for own in PLAYED},
        }
    }


BEST = {"maddpg": -40.0, "mfac": -35.0, "epc": -30.0, "darl1n": -20.0}


def test_sides_are_normalised_and_belong_to_who_trained_them() -> None:
    found = games(BEST, {**BEST, "darl1n": -50.0, "epc": -40.0})
    good, adversary = (crossplay.normalised(found, side) for side in crossplay.SIDES)
    assert [good[method].mean() for method in PLAYED] == [0.0, 0.25, 0.5, 1.0]
    assert [adversary[method].mean() for method in PLAYED] == [2 / 3, 1.0, 2 / 3, 0.0]
    verdicts = crossplay.judge_crossplay(found, WHOLE)
    assert [each.held for each in verdicts] == [Held.NOT_HELD] * 2
    assert verdicts[0].reason.startswith("adversary of maddpg")
    assert verdicts[1].reason.startswith("adversary of maddpg: 0.67, of epc 0.67; adversary of m")
    best, short = (crossplay.judge_crossplay(games(BEST, BEST), each) for each in (WHOLE, TINY))
    assert [each.held for each in best] == [Held.HELD] * 2
    assert [each.held for each in short] == [Held.NOT_TESTABLE] * 2
    small = crossplay.judge_crossplay(games(BEST, BEST), dataclasses.replace(WHOLE, sizes=1))
    assert [each.held for each in small] == [Held.UNDECIDED] * 2


TWO = dataclasses.replace(TINY, sizes=2)


def test_teams_grow_in_all_tasks_and_begin_from_scratch_in_ising() -> None:
    alone = {
        cell.name
        for task in (ISING, FOOD)
        for cell in epc_runs.cells(WHOLE, task, Path(), time.process_time)
    }
    sought = {name for team in teams(WHOLE) for name in epc_runs.names(*team).values()}
    assert alone == {name for name in sought if "grassland" not in name and "battle" not in name}
    assert len(alone) == 4 + 3 + 4
    assert len(sought) == len(alone) + 4 + 4


def test_a_stage_goes_on_from_the_runs_of_the_one_before(tmp_path: Path) -> None:
    asked = itertools.count()
    first, second, *_ = epc_runs.cells(TWO, ISING, tmp_path, lambda: float(next(asked)))
    small = first.compute()
    spent = next(asked)
    grown = second.compute()
    assert next(asked) == 2 * spent + 1  # as often again, plus this test's own question
    assert small["before"] == 0.0
    assert grown["before"] == small["runs"][0]["seconds"][-1]
    assert [run["iterations"] for run in grown["runs"]] == [[0, 1, 2]]


@pytest.mark.thorough
def test_teams_of_another_effort_are_none_to_go_on_from(tmp_path: Path) -> None:
    longer = dataclasses.replace(TINY, iterations=3)
    lengths = [
        epc_runs.cells(budget, ISING, tmp_path, time.process_time)[0].compute()["runs"][0][
            "iterations"
        ]
        for budget in (TINY, longer)
    ]
    assert lengths == [[0, 1, 2], [0, 1, 2, 3]]


def test_a_team_that_grows_meets_the_episodes_that_other_methods_meet(tmp_path: Path) -> None:
    (other,) = (each for each in learners(TINY, FOOD) if each.method == "maddpg")
    curriculum = epc_runs.curriculum(TINY, FOOD, FOOD.sizes[:1])
    (run,) = train(curriculum, tmp_path, clock=time.process_time)
    team = curriculum.team(other.size.agents)
    team.begin(run.parameters)
    last = other.play(Greedy(team), seed=derive(0, "learning_curve", 2))
    assert run.points[-1].mean_return == last.returns.mean()


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_team_that_grows_has_as_many_runs_as_there_are_seeds(seeds: int, tmp_path: Path) -> None:
    budget = dataclasses.replace(TWO, seeds=seeds)
    cells = epc_runs.cells(budget, FOOD, tmp_path, time.process_time)
    for size in FOOD.sizes[:2]:
        name = epc_runs.names(FOOD, size)["epc"]
        (cell,) = (each for each in cells if each.name == name)
        assert len(cell.compute()["runs"]) == seeds


def test_curves_of_seeds_are_averaged() -> None:
    runs = [{"iterations": [0, 1], "seconds": [0.0, s], "returns": [0.0, s]} for s in (1.0, 3.0)]
    mean = mean_curve(runs)
    assert (mean.seconds[-1], mean.returns[-1], mean.iteration_s) == (2.0, 2.0, 2.0)


SLOW = [0.0, 10.0, 20.0, 30.0, 60.0, 100.0]
WORSE = [0.0, 90.0, 90.0, 90.0, 90.0, 90.0]
LEARNT = {"epc": [101.0] * 6}
PACES = {"darl1n": 1.0, "maddpg": 2.0, "mfac": 3.0, "epc": 0.5, "epc-scratch": 4.0}


def found_with(**returns: list[float]) -> dict[str, JSON]:
    """Runs of all teams; EPC is fast in Ising and slow in Food Collection."""
    learnt = LEARNT | returns
    found: dict[str, JSON] = {}
    for each in (trial for task in TASKS for trial in learners(WHOLE, task)):
        found[each.name] = points(learnt.get(each.method), pace=PACES[each.method])
    for team in teams(WHOLE):
        for method, name in epc_runs.names(team.task, team.size).items():
            pace = PACES[method] if team.task is ISING else 5.0
            first = team.size == team.task.sizes[0]
            runs = [points(learnt.get(method), pace=pace)] * 3
            found.setdefault(name, {"runs": runs, "before": 0.0 if first else 70.0})
    return found


def points(returns: list[float] | None, *, pace: float) -> JSON:
    learnt = returns or [0.0, 100.0, 100.0, 100.0, 100.0, 100.0]
    iterations = range(0, 30 * len(learnt), 30)
    seconds = [pace * iteration for iteration in iterations]
    return {"iterations": list(iterations), "seconds": seconds, "returns": learnt}


LATER = [0.0, 50.0, 70.0, 80.0, 90.0, 100.0]
NEAR = [0.0, 95.0, 95.0, 95.0, 95.0, 95.0]


@pytest.mark.parametrize(
    ("claim", "good", "bad"),
    [
        (0, {}, {"mfac": WORSE}),
        (1, {}, {"darl1n": LATER}),
        (2, {}, {"darl1n": SLOW}),
        (3, {}, {"darl1n": SLOW}),
        (4, {"maddpg": WORSE, "mfac": WORSE}, {"maddpg": WORSE}),
        (5, {"maddpg": NEAR}, {"maddpg": [0.0] * 6}),
        (6, {}, {"darl1n": SLOW}),
    ],
)
def test_claims_on_learning_are_judged_by_the_curves(
    claim: int, good: dict[str, list[float]], bad: dict[str, list[float]]
) -> None:
    assert claims.judge_learning(found_with(**good), WHOLE)[claim].held is Held.HELD
    assert claims.judge_learning(found_with(**bad), WHOLE)[claim].held is Held.NOT_HELD


def test_claims_whose_runs_are_missing_are_undecided() -> None:
    judged = claims.judge_learning({}, WHOLE)
    judged += rankings.judge_rankings({}, WHOLE)[:-1] + rankings.judge_paces({}, WHOLE)
    judged += epc_claims.judge_growth({}, WHOLE) + full_range.judge_full_range({}, MORE)
    judged += coded_rewards.judge_rewards({}, MORE)
    assert {each.held for each in judged} == {Held.UNDECIDED}
    assert tables.of_learning({}, WHOLE) == coded_rewards.of_rewards({}, MORE) == ""


def test_a_seed_counts_when_all_methods_have_it() -> None:
    found = found_with()
    del found["train-ising-9-mfac-seed1"]
    team = teams(WHOLE)[0]
    assert seeds(found, WHOLE, team) == [0, 2]
    assert claims.judge_learning(found, WHOLE)[0].held is Held.UNDECIDED
    assert "Of 3 seeds there are 2 with M = 9." in tables.of_learning(found, WHOLE)


def test_short_runs_of_one_seed_judge_nothing() -> None:
    smoke = dataclasses.replace(WHOLE, sizes=1, iterations=150, seeds=1)
    verdicts = claims.judge_learning(found_with(), smoke)
    verdicts += rankings.judge_rankings(found_with(), smoke)
    verdicts += epc_claims.judge_growth(found_with(), smoke)
    assert {each.held for each in verdicts} == {Held.NOT_TESTABLE}
    assert "one seed" in verdicts[0].reason


def contest_with(leads: Sequence[float]) -> Results:
    """Curves of the smallest team of Grassland; DARL1N leads by as much at each seed."""
    return {
        each.name: points([0.0, *[-100.0 + leads[each.seed]] * 5], pace=1.0)
        if each.method == "darl1n"
        else points([0.0, *[-100.0] * 5], pace=1.0)
        for each in learners(dataclasses.replace(WHOLE, sizes=1), GRASSLAND)
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
    assert rankings.judge_rankings(contest_with(leads), WHOLE)[0].held is held


def test_an_iteration_counts_as_a_learner_s_part_and_as_a_whole() -> None:
    apart, whole = rankings.judge_paces(found_with(), WHOLE)[:2]
    slow = {
        name: {**run, "seconds": [20.0 * second for second in run["seconds"]]}
        for name, run in found_with().items()
        if "darl1n" in name
    }
    slower = rankings.judge_paces(found_with() | slow, WHOLE)
    assert (apart.held, whole.held) == (Held.HELD, Held.HELD)  # 1 s an iteration against 2 s
    assert (slower[0].held, slower[1].held) == (Held.NOT_HELD, Held.NOT_HELD)


def test_grown_teams_are_judged_by_the_starts_that_epc_keeps() -> None:
    def starting(*shares: float) -> list[Held]:
        found = {
            epc_runs.names(ISING, size)["epc"]: {
                "runs": [points([share * 52.0 * size.agents] * 2, pace=1.0) for share in shares]
            }
            for size in ISING.sizes
        }
        return [each.held for each in epc_claims.judge_growth(found, WHOLE)]

    assert starting(1.0, 0.4, 1.0) == [Held.HELD, Held.HELD]
    assert starting(1.0, 0.4, 0.9) == [Held.NOT_HELD, Held.UNDECIDED]


MORE = dataclasses.replace(WHOLE, coded=100, full_range=True)


def fuller_range(ends: Sequence[float], *, pace: float) -> Results:
    near = {each.name: points(None, pace=1.0) for each in learners(MORE, FOOD)}
    return near | {
        each.name: points([0.0, *[ends[each.seed]] * 5], pace=pace)
        for each in full_range.trials(MORE)
    }


def test_the_full_range_is_compared_seed_by_seed() -> None:
    lower = full_range.judge_full_range(fuller_range([50.0, 60.0, 55.0], pace=2.0), MORE)
    higher = full_range.judge_full_range(fuller_range([150.0, 160.0, 155.0], pace=0.5), MORE)
    mixed = full_range.judge_full_range(fuller_range([50.0, 160.0, 95.0], pace=1.0), MORE)
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
        for each in coded_rewards.trials(MORE, scheme)
    }


def test_codes_learn_or_do_not_by_their_share_of_the_uncoded_gain() -> None:
    none, little, whole, any_ = (0.0,) * 3, (0.1, 0.12, 0.1), (1.0, 0.95, 1.0), (0.0, 1.0, 0.5)
    names = [scheme.name for scheme in TIMED]
    as_published = dict(zip(names, ((1.0,) * 3, none, little, whole, whole), strict=True))
    reverse = dict(zip(names, ((1.0,) * 3, whole, whole, none, little), strict=True))
    doubtful = dict(zip(names, ((1.0,) * 3, any_, any_, any_, any_), strict=True))
    for shares, held in (
        (as_published, Held.HELD),
        (reverse, Held.NOT_HELD),
        (doubtful, Held.UNDECIDED),
    ):
        judged = coded_rewards.judge_rewards(coded_with(shares), MORE)
        assert [each.held for each in judged] == [held] * 4
    page = coded_rewards.of_rewards(coded_with(as_published), MORE)
    assert "| mds | -231 / -253 / -212 | -200.0 | -200 / -200 / -200 | 0% |" in page


def test_runs_with_codes_commit_at_rank_m_and_others_have_none() -> None:
    plain, coded = learners(MORE, FOOD)[0].config(), coded_rewards.trials(MORE, MDS)[0].config()
    assert (plain.learners, coded.learners) == (3, 24)
    assert as_tables(coded)["algorithm"]["data"] == "independent"
    assert math.isinf(as_tables(coded)["algorithm"]["max_variance"])


def test_the_paper_s_numbers_stand_beside_ours() -> None:
    page = tables.of_learning(found_with(), WHOLE)
    assert "| 24 | darl1n | 1830 |" in page
    assert "| 64 | epc-scratch | 2995 | 360.0 (90) | 360.0 (90) | 2503 | 100.0 |" in page
    assert "| 9 | epc-scratch | 101 | 45.0 (90) |" in page  # EPC's own
    assert "| 6 | epc | 4883 | 450.0 (90) |" in page
    assert page.count("all runs together: 70 s before M = ") == 4
    assert "70 s before M = 16, 70 s before M = 25, 70 s before M = 64." in page
    assert [task.table for task in TASKS] == ["I", "II", "III", "IV"]
    assert FOOD.printed["darl1n"][2].reward == 13.0
    assert ISING.sizes[3].iterations == 250
