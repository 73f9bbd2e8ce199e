"""Exactness: committed updates do not depend on the code, the stragglers or the arrival order."""

import warnings
from functools import cache
from itertools import product, takewhile
from typing import Any

import pytest
from tests.registries import shipped

from fullrank.codes import codes, make_code
from fullrank.common.errors import CodeError
from fullrank.config import RunConfig, load
from fullrank.local import LocalRun

TWO_SIDES: dict[str, Any] = {
    "environment.name": "predator_prey",
    "environment.agents": 3,
    "algorithm.ddpg_sides": ["predator"],
}
SMALL: dict[str, Any] = {
    "iterations": 5,
    "environment.copies": 2,
    "collect.steps": 13,
    "collect.warmup": 120,
    "collect.warmup_copies": 4,
    "algorithm.batch_size": 37,
    "algorithm.hidden": 18,
}
MAY_BE_INEXACT = {"vandermonde"}


def sizes_for(name: str) -> tuple[int, int] | None:
    """Agents and learners for which the code exists and recovers single units."""
    for agents, rows in product((3, 4), (0, 15)):
        learners = rows or agents + 2
        try:
            if make_code(name, rows=learners, units=agents).recovers_units:
                return agents, learners
        except CodeError:
            continue
    return None


with warnings.catch_warnings(action="ignore"):  # conditions are the subject of this file
    CASES = [(name, *sizes) for name in shipped(codes) if (sizes := sizes_for(name))]


def config(**options: Any) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    return load(options=SMALL | TWO_SIDES | keys).check().config


@cache
def reference(agents: int = 3) -> tuple[tuple[str, ...], str]:
    """Update digests and final parameters of the centralised run."""
    run = LocalRun(config(environment__agents=agents), coded=False)
    return tuple(iteration.update_digest for iteration in run), run.parameter_digest()


def test_every_code_that_recovers_single_units_is_tried() -> None:
    assert {name for name, *_ in CASES} == set(shipped(codes)) - {"fractional"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "agents", "learners"), CASES)
def test_any_code_with_stragglers_commits_the_bits_of_the_centralised_run(
    name: str, agents: int, learners: int
) -> None:
    run = LocalRun(
        config(
            environment__agents=agents,
            learners=learners,
            code__name=name,
            stragglers__name="fixed_k",
            stragglers__k=1,
        ),
        independent_learners=True,
    )
    iterations = run.train()
    digests, parameters = reference(agents)
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


@pytest.mark.parametrize(
    ("parts", "name", "learners"),
    [(3, "fractional", 6), (4, "cyclic", 6)],
)
def test_micro_batches_commit_the_bits_of_the_centralised_run(
    parts: int, name: str, learners: int
) -> None:
    """Two alike agents and an adversary, and 37 transitions, which no number here divides."""
    late = {"stragglers__name": "fixed_k", "stragglers__k": 1}
    options = {"algorithm__micro_batches": parts, "learners": learners, "code__name": name, **late}
    run = LocalRun(config(**options), independent_learners=True)
    alone = LocalRun(config(**options), coded=False)
    assert all(iteration.exact for iteration in run)
    alone.train()
    assert run.parameter_digest() == alone.parameter_digest() != reference()[1]
