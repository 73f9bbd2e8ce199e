"""Runs of value-based teams: exactness under codes and stragglers, resumption, and learning."""

import warnings
from functools import cache
from typing import Any

import pytest
from tests.registries import shipped

from fullrank.codes import codes, make_code
from fullrank.codes.targets import sum_of_units
from fullrank.common.errors import CodeError
from fullrank.config import RunConfig, load
from fullrank.local import LocalRun
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.wiring import environment_of

SMALL: dict[str, Any] = {
    "iterations": 4,
    "environment.copies": 2,
    "collect.warmup": 120,
    "collect.warmup_copies": 4,
    "algorithm.batch_size": 10,
    "algorithm.hidden": 12,
    "algorithm.target_every": 2,
}
LEARNING: dict[str, Any] = {
    "iterations": 200,
    "environment.name": "two_step_game",
    "environment.agents": 0,
    "environment.copies": 64,
    "collect.warmup": 200,
    "algorithm.exploration_end": 1.0,
    "algorithm.hidden": 16,
    "algorithm.micro_batches": 1,
    "algorithm.batch_size": 16,
    "algorithm.target_every": 25,
    "algorithm.optimiser": "adam",
    "algorithm.learning_rate": 0.01,
}
"""Full exploration of the two-step game, with small networks."""
MIXING: dict[str, Any] = {"algorithm.mixing": 8, "algorithm.hypernet": 8}
MAY_BE_INEXACT = {"vandermonde"}


def config(name: str, *, parts: int = 3, **options: Any) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    chosen = {"algorithm.name": name, "algorithm.micro_batches": parts}
    return load(options=SMALL | chosen | keys).check().config


def learners_for(code: str, parts: int) -> int:
    """A number of learners for which the code exists and recovers the sum without one of them."""
    for rows in (parts + 2, 15):
        try:
            built = make_code(code, rows=rows, units=parts).recovering(sum_of_units(parts))
        except CodeError:
            continue
        if built.tolerance >= 1:
            return rows
    return 0


@cache
def reference(name: str, parts: int) -> tuple[tuple[str, ...], str]:
    """Update digests and final parameters of the centralised run."""
    run = LocalRun(config(name, parts=parts), coded=False)
    return tuple(iteration.update_digest for iteration in run), run.parameter_digest()


with warnings.catch_warnings(action="ignore"):  # conditions are the subject of another file
    CASES = [
        (code, parts, learners)
        for code in shipped(codes)
        for parts in (1, 3, 8)
        if (learners := learners_for(code, parts))
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("code", "parts", "learners"),
    [case if case[1] < 8 else pytest.param(*case, marks=pytest.mark.thorough) for case in CASES],
)
def test_every_code_of_the_sum_commits_the_centralised_bits_though_one_straggles(
    code: str, parts: int, learners: int
) -> None:
    straggling = {"stragglers__name": "fixed_k", "stragglers__k": 1}
    run = LocalRun(
        config("qmix", parts=parts, learners=learners, code__name=code, **straggling),
        independent_learners=True,
    )
    iterations = run.train()
    if code in MAY_BE_INEXACT and not all(iteration.exact for iteration in iterations):
        return
    digests, parameters = reference("qmix", parts)
    assert tuple(iteration.update_digest for iteration in iterations) == digests
    assert run.parameter_digest() == parameters


def test_most_codes_recover_the_sum() -> None:
    assert {code for code, parts, _ in CASES if parts == 3} >= {"cyclic", "fractional", "mds"}


@pytest.mark.parametrize("name", ["vdn", "iql"])
def test_all_value_based_teams_commit_the_centralised_bits(name: str) -> None:
    run = LocalRun(config(name, learners=6, code__name="fractional"))
    run.train()
    assert run.parameter_digest() == reference(name, 3)[1]


def test_battles_with_masks_and_states_commit_the_centralised_bits() -> None:
    battles: dict[str, Any] = {
        "environment__name": "smac_lite",
        "environment__agents": 0,
        "iterations": 2,
    }
    runs = [
        LocalRun(config("qmix", learners=4, code__name="fractional", **battles), coded=coded)
        for coded in (False, True)
    ]
    central, coded = (
        [(iteration.update_digest, iteration.statistics) for iteration in run.train()]
        for run in runs
    )
    assert central == coded
    assert central[0][1].keys() >= {"loss", "grad_norm", "epsilon", "battle_won_mean"}
    assert runs[0].parameter_digest() == runs[1].parameter_digest()


@pytest.mark.parametrize(
    "learners", [1, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 5, 8)), 12]
)
def test_the_number_of_learners_changes_nothing(learners: int) -> None:
    run = LocalRun(
        config("qmix", parts=8, learners=learners, code__name="fractional", code__tolerance=0)
    )
    run.train()
    assert run.parameter_digest() == reference("qmix", 8)[1]


def test_the_number_of_units_changes_the_bits_alone() -> None:
    assert reference("qmix", 3) != reference("qmix", 8)


@pytest.mark.parametrize("name", ["qmix", "iql"])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_recurrent_run_goes_on_from_its_state_as_if_it_had_not_stopped(
    name: str, ahead: bool
) -> None:
    whole = config(name, iterations=6, algorithm__exploration_steps=300)
    stopped, resumed = (LocalRun(whole, coded=False) for _ in range(2))
    iterations = iter(stopped)
    for _ in range(3):
        next(iterations)
    if ahead:
        stopped.training.collector.collect(3)
    resumed.training.load(stopped.training.state(resume_at=3), resume_at=3)
    assert resumed.parameter_digest() == stopped.parameter_digest()
    for iteration in (3, 4):
        played = [run.training.collector.collect(iteration) for run in (stopped, resumed)]
        assert played[0].rows.tobytes() == played[1].rows.tobytes()
        assert played[0].statistics == played[1].statistics


def test_evaluations_do_not_depend_on_the_number_of_copies() -> None:
    """Recurrent state belongs to a copy and is cleared when its episode begins."""
    run = LocalRun(config("qmix"), coded=False)
    run.train()
    returns = []
    for copies in (1, 3, 8):
        environment = environment_of(config("qmix"), copies=copies)
        returns.append(evaluate(environment, Greedy(run.training.algorithm.actor), 5, 0).returns)
    assert returns[0].tolist() == returns[1].tolist() == returns[2].tolist()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5))]
)
@pytest.mark.parametrize(("name", "best"), [("qmix", 8.0), ("vdn", 7.0)])
def test_qmix_finds_the_choice_that_needs_a_partner_and_vdn_the_safe_one(
    name: str, best: float, seed: int
) -> None:
    mixing = MIXING if name == "qmix" else {}
    settings = LEARNING | mixing | {"algorithm.name": name, "seed": seed}
    run = LocalRun(load(options=settings).check().config, coded=False)
    run.train()
    environment = environment_of(load(options=settings).check().config, copies=1)
    played = evaluate(environment, Greedy(run.training.algorithm.actor), 1, 0)
    assert played.returns.tolist() == [best]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5))]
)
def test_qmix_does_not_solve_the_climbing_game(seed: int) -> None:
    """No monotonic table whose largest entry is at the best choice, 11, is near the others."""
    settings = LEARNING | {
        "environment.name": "matrix_game",
        "algorithm.name": "qmix",
        "algorithm.batch_size": 64,
        "seed": seed,
    }
    chosen = load(options=settings).check().config
    run = LocalRun(chosen, coded=False)
    run.train()
    greedy = Greedy(run.training.algorithm.actor)
    played = evaluate(environment_of(chosen, copies=1), greedy, 1, 0)
    assert played.returns[0] in (5.0, 6.0)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 3))]
)
@pytest.mark.parametrize("memory", [True, False])
def test_the_switch_riddle_is_solved_with_memory_and_not_without(memory: bool, seed: int) -> None:
    """Two prisoners: the optimum is the share of starts in which both come, about a half.

    A prisoner without memory does not know whether it was in the room on the day before; the best
    such pair earns a quarter.
    """
    settings = LEARNING | {
        "environment.name": "switch_riddle",
        "environment.agents": 2,
        "environment.copies": 32,
        "algorithm.name": "vdn",
        "algorithm.recurrent": memory,
        "algorithm.last_action": memory,
        "algorithm.batch_size": 32,
        "algorithm.exploration_end": 0.05,
        "algorithm.exploration_steps": 6000,
        "seed": seed,
    }
    chosen = load(options=settings).check().config
    run = LocalRun(chosen, coded=False)
    run.train()
    greedy = Greedy(run.training.algorithm.actor)
    played = evaluate(environment_of(chosen, copies=50), greedy, 400, 0)
    assert (played.returns >= 0).all() if memory else played.returns.mean() < 0.3
    assert played.won is not None
    assert (played.won.mean() > 0.4) == memory


def test_rewards_are_standardised_where_all_episodes_have_one_length() -> None:
    """Elsewhere a shift of all rewards would pay for ending an episode early, or late."""
    fixed = config("qmix", collect__warmup=2000)
    battles = config("qmix", environment__name="smac_lite", environment__agents=0)
    stored = []
    for chosen in (fixed, battles):
        run = LocalRun(chosen, coded=False)
        layout, rows = run.training.problem.episodes, run.training.collector.warm_up()
        assert layout is not None
        stored.append(rows[rows[:, layout.length] == 0, layout.reward])
    assert abs(stored[0].mean()) < 0.2
    assert stored[0].std() == pytest.approx(1.0, abs=0.2)
    assert (stored[1] >= 0).all()


@pytest.mark.parametrize("learners", [2, 3])
def test_fewer_learners_than_units_return_one_sum_each(learners: int) -> None:
    few = config("qmix", parts=4, learners=learners, code__name="cyclic")
    code = LocalRun(few).code
    assert (code.rows, code.tolerance) == (learners, 1)
    coded = [iteration.update_digest for iteration in LocalRun(few).train()]
    assert coded == [iteration.update_digest for iteration in LocalRun(few, coded=False).train()]
