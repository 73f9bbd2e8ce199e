"""Exactness: committed updates do not depend on the code, the stragglers or the arrival order."""

import warnings
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Any

import pytest
from tests.registries import shipped

from fullrank.codes import codes, make_code
from fullrank.codes.targets import sum_of_units
from fullrank.common.errors import CodeError
from fullrank.config import RunConfig, load
from fullrank.local import LocalRun
from fullrank.wiring import Training, training_of

ENVIRONMENTS: dict[str, tuple[dict[str, Any], int]] = {
    "three_alike": ({}, 3),
    "eight_alike": ({"environment.agents": 8}, 8),
    "two_sides": (
        {
            "environment.name": "predator_prey",
            "environment.agents": 3,
            "algorithm.ddpg_sides": ["predator"],
        },
        3,
    ),
    "two_unlike": (
        {
            "environment.name": "mpe2.simple_speaker_listener_v4:parallel_env",
            "environment.agents": 0,
        },
        2,
    ),
}
SMALL = {
    "iterations": 5,
    "environment.copies": 2,
    "collect.steps": 13,
    "collect.warmup": 120,
    "collect.warmup_copies": 4,
    "algorithm.batch_size": 37,
    "algorithm.hidden": 18,
}
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2)))
MAY_BE_INEXACT = {"vandermonde"}


def learners_for(name: str, units: int) -> int:
    """A number of learners for which the code exists and recovers single units, else 0."""
    for rows in (units + 2, 15):
        try:
            if make_code(name, rows=rows, units=units).recovers_units:
                return rows
        except CodeError:
            continue
    return 0


with warnings.catch_warnings(action="ignore"):  # conditions are the subject of this file
    CASES = [
        (name, environment, learners)
        for name in shipped(codes)
        for environment, (_, units) in ENVIRONMENTS.items()
        if (learners := learners_for(name, units))
    ]


def config(environment: str, seed: int, **options: Any) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    return load(options=SMALL | ENVIRONMENTS[environment][0] | {"seed": seed} | keys).check().config


@cache
def reference(environment: str, seed: int) -> tuple[tuple[str, ...], str]:
    """Update digests and final parameters of the centralised run."""
    run = LocalRun(config(environment, seed), coded=False)
    return tuple(iteration.update_digest for iteration in run), run.parameter_digest()


def test_every_code_that_recovers_single_units_is_tried() -> None:
    assert {name for name, *_ in CASES} == set(shipped(codes)) - {"fractional"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "environment", "learners"), CASES)
def test_any_code_with_stragglers_commits_the_bits_of_the_centralised_run(
    name: str, environment: str, learners: int, seed: int
) -> None:
    run = LocalRun(
        config(
            environment,
            seed,
            learners=learners,
            code__name=name,
            stragglers__name="fixed_k",
            stragglers__k=1,
        ),
        independent_learners=True,
    )
    iterations = run.train()
    digests, parameters = reference(environment, seed)
    exact = list(takewhile(lambda iteration: iteration.exact, iterations))
    assert tuple(iteration.update_digest for iteration in exact) == digests[: len(exact)]
    if name not in MAY_BE_INEXACT:
        assert len(exact) == len(digests)
        assert run.parameter_digest() == parameters


def test_the_contact_distance_commits_the_bits_of_the_number_that_it_stands_for() -> None:
    world = {"algorithm.name": "darl1n", "environment.name": "food_collection"}
    apart = {"learners": 5, "code.name": "cyclic", "stragglers.name": "exponential"}
    options = SMALL | world | {"environment.agents": 3}
    fixed, other = (
        load(options=options | {"environment.distance": distance}).check().config
        for distance in (0.2, 0.15)
    )
    contact = load(options=options | apart | {"environment.distance": "contact"}).check().config
    assert contact.environment.params["distance"] == "contact"
    runs = LocalRun(fixed, coded=False), LocalRun(contact), LocalRun(other, coded=False)
    centralised, coded, another = ([each.update_digest for each in run] for run in runs)
    assert coded == centralised
    assert set(coded).isdisjoint(another)


@pytest.mark.parametrize(("name", "k"), [("cyclic", 2), ("mds", 2), ("replication", 3)])
def test_who_straggles_changes_who_is_received_and_nothing_else(name: str, k: int) -> None:
    models: list[dict[str, Any]] = [
        {},
        {"stragglers__name": "fixed_k", "stragglers__k": k},
        {"stragglers__name": "exponential"},
    ]
    plain, *others = (
        LocalRun(config("three_alike", 0, learners=6, code__name=name, **model)).train()
        for model in models
    )
    for other in others:
        assert [one.update_digest for one in other] == [one.update_digest for one in plain]
        assert [one.received for one in other] != [one.received for one in plain]


@pytest.mark.parametrize("learners", [3, 4, 7, 12])
def test_the_number_of_learners_changes_nothing(learners: int) -> None:
    run = LocalRun(config("three_alike", 1, learners=learners, code__name="mds"))
    run.train()
    assert run.parameter_digest() == reference("three_alike", 1)[1]


@pytest.mark.parametrize(
    ("parts", "name", "learners"),
    [
        (2, "fractional", 4),
        (2, "mds", 8),
        (3, "cyclic", 3),
        (3, "fractional", 6),
        (4, "uncoded", 5),
        (4, "cyclic", 6),
    ],
)
def test_micro_batches_commit_the_bits_of_the_centralised_run(
    parts: int, name: str, learners: int
) -> None:
    """Two alike agents and an adversary, and 37 transitions, which no number here divides."""
    late = {"stragglers__name": "fixed_k", "stragglers__k": 1} if name != "uncoded" else {}
    options = {"algorithm__micro_batches": parts, "learners": learners, "code__name": name, **late}
    run = LocalRun(config("two_sides", 0, **options), independent_learners=True)
    alone = LocalRun(config("two_sides", 0, **options), coded=False)
    assert all(iteration.exact for iteration in run)
    alone.train()
    assert run.parameter_digest() == alone.parameter_digest() != reference("two_sides", 0)[1]


def test_runs_whose_target_is_a_sum_commit_the_centralised_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run with an algorithm that asks for the sum of the updates, and applies nothing."""

    def summing(config: RunConfig) -> Training:
        training = training_of(config)
        algorithm = training.trainer.algorithm
        target = sum_of_units(len(algorithm.problem.units))
        problem = replace(algorithm.problem, target=target)
        training.trainer.algorithm = replace(algorithm, problem=problem)
        monkeypatch.setattr(training.trainer, "apply", lambda updates, iteration: {})
        return training

    monkeypatch.setattr("fullrank.local.training_of", summing)
    straggling = {"stragglers__name": "fixed_k", "stragglers__k": 1}
    digests = [
        [
            iteration.update_digest
            for iteration in LocalRun(
                config("three_alike", 0, learners=6, code__name=name, **straggling), coded=coded
            )
        ]
        for name, coded in [
            ("cyclic", False),
            ("cyclic", True),
            ("fractional", True),
            ("replication", True),
        ]
    ]
    assert len(digests[0]) == SMALL["iterations"]
    assert digests.count(digests[0]) == len(digests)
