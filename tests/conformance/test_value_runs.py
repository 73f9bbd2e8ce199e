"""Runs of teams of whole episodes: exactness under codes and stragglers, resumption, and memory."""

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
from fullrank.wiring.plugins import environment_of

SMALL: dict[str, Any] = {
    "iterations": 4,
    "environment.copies": 2,
    "collect.warmup": 120,
    "collect.warmup_copies": 4,
    "algorithm.batch_size": 10,
    "algorithm.hidden": 12,
    "algorithm.target_every": 2,
}
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
def reference(parts: int) -> tuple[tuple[str, ...], str]:
    """Update digests and final parameters of the centralised run."""
    run = LocalRun(config("qmix", parts=parts), coded=False)
    return tuple(iteration.update_digest for iteration in run), run.parameter_digest()


with warnings.catch_warnings(action="ignore"):  # conditions are the subject of another file
    CASES = [
        (code, parts, learners)
        for code in shipped(codes)
        for parts in (1, 3)
        if (learners := learners_for(code, parts))
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("code", "parts", "learners"), CASES)
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
    digests, parameters = reference(parts)
    assert tuple(iteration.update_digest for iteration in iterations) == digests
    assert run.parameter_digest() == parameters


def test_most_codes_recover_the_sum() -> None:
    assert {code for code, parts, _ in CASES if parts == 3} >= {"cyclic", "fractional", "mds"}


@pytest.mark.parametrize("ahead", [False, True])
def test_a_recurrent_run_goes_on_from_its_state_as_if_it_had_not_stopped(ahead: bool) -> None:
    whole = config("iql", iterations=6, algorithm__exploration_steps=300)
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


@pytest.mark.integration
@pytest.mark.parametrize("memory", [True, False])
def test_the_switch_riddle_is_solved_with_memory_and_not_without(memory: bool) -> None:
    """Two prisoners: the optimum is the share of starts in which both come, about a half.

    A prisoner without memory does not know whether it was in the room on the day before; the best
    such pair earns a quarter.
    """
    settings: dict[str, Any] = {
        "iterations": 200,
        "environment.name": "switch_riddle",
        "environment.agents": 2,
        "environment.copies": 32,
        "collect.warmup": 200,
        "algorithm.name": "vdn",
        "algorithm.hidden": 16,
        "algorithm.micro_batches": 1,
        "algorithm.recurrent": memory,
        "algorithm.last_action": memory,
        "algorithm.batch_size": 32,
        "algorithm.target_every": 25,
        "algorithm.optimiser": "adam",
        "algorithm.learning_rate": 0.01,
        "algorithm.exploration_end": 0.05,
        "algorithm.exploration_steps": 6000,
    }
    chosen = load(options=settings).check().config
    run = LocalRun(chosen, coded=False)
    run.train()
    greedy = Greedy(run.training.algorithm.actor)
    played = evaluate(environment_of(chosen, copies=50), greedy, 400, 0)
    assert (played.returns >= 0).all() if memory else played.returns.mean() < 0.3
    assert played.won is not None
    assert (played.won.mean() > 0.4) == memory
