"""Groups of agents that share networks: what they learn, and equal bits for every code."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conformance.algorithm_cases import (
    collects,
    config,
    layout,
    spec_of,
    team,
    transitions,
)

from fullrank.algorithms import Algorithm
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.trajectories import ENTRIES
from fullrank.algorithms.updates import Entries
from fullrank.algorithms.values import ValueLearner
from fullrank.common.types import FloatArray
from fullrank.config import load
from fullrank.local import LocalRun

ACTOR_CRITICS = ("maddpg", "mfac", "darl1n", "masac", "isac")
TEAMS = ("qmix", "vdn", "iql", "qplex")
GROUPS: Mapping[str, dict[str, tuple[str, ...]]] = {
    "maddpg": {"scouts": ("scout", "scout_3"), "lone": ("scout_2", "scout_4")},
    "darl1n": {"three": tuple(agent.name for agent in team("darl1n")[:3])},
}
SMALL: dict[str, Any] = {
    "iterations": 3,
    "environment.copies": 2,
    "collect.steps": 10,
    "collect.warmup": 60,
    "collect.warmup_copies": 3,
    "algorithm.batch_size": 12,
    "algorithm.hidden": 10,
    "learners": 6,
}
PREDATORS: dict[str, Any] = {"environment.name": "predator_prey", "environment.agents": 3}
BATTLE: dict[str, Any] = {"environment.name": "adversarial_battle", "environment.agents": 6}
ONCE: dict[str, Any] = {
    "iterations": 4,
    "environment.copies": 4,
    "algorithm.batch_size": 2,
    "algorithm.epochs": 2,
    "algorithm.micro_batches": 2,
}
"""Every episode of a collection once in each of two epochs: four updates."""
RUNS: dict[str, dict[str, Any]] = {
    "maddpg": PREDATORS | {"algorithm.share": "side"},
    "mfac": PREDATORS | {"algorithm.share": "side", "algorithm.micro_batches": 2},
    "darl1n": BATTLE | {"algorithm.share": "side"},
    "masac": PREDATORS | {"algorithm.share": "side", "algorithm.micro_batches": 2},
    "isac": PREDATORS | {"algorithm.share": "side"},
    "coma": {key: value for key, value in ONCE.items() if key != "algorithm.epochs"}
    | {"environment.name": "switch_riddle", "environment.agents": 0, "algorithm.share": "none"},
    "ippo": PREDATORS | ONCE | {"algorithm.share": "side"},
    "pqn": ONCE
    | {"algorithm.recurrent": True, "algorithm.mixer": "none"}
    | {"environment.name": "switch_riddle", "environment.agents": 0, "algorithm.share": "none"},
    "mappo": ONCE
    | {"algorithm.recurrent": True}
    | {"environment.name": "switch_riddle", "environment.agents": 0, "algorithm.share": "none"},
    **{
        name: {
            "environment.name": "switch_riddle",
            "environment.agents": 0,
            "algorithm.share": share,
        }
        for name, share in zip(TEAMS, ("none", "side", "none", "none"), strict=True)
    },
}
CODES: Sequence[dict[str, Any]] = (
    {"code.name": "fractional"},
    {"code.name": "mds", "stragglers.name": "fixed_k", "stragglers.k": 1},
)


@pytest.mark.parametrize("name", RUNS)
def test_shared_networks_learn_the_same_bits_with_codes_and_stragglers(name: str) -> None:
    def trained(*, coded: bool, **code: Any) -> tuple[Any, str]:
        options = SMALL | {"algorithm.name": name} | RUNS[name] | code
        run = LocalRun(load(options=options).check().config, coded=coded)
        facts = [(each.update_digest, each.statistics) for each in run.train()]
        return facts, run.parameter_digest()

    expected = trained(coded=False)
    for code in CODES:
        assert trained(coded=True, **code) == expected


def share_of(name: str) -> Mapping[str, tuple[str, ...]]:
    """The groups of an algorithm's team; all others are alone."""
    groups = GROUPS.get(name, GROUPS["maddpg"])
    shared = {agent for own in groups.values() for agent in own}
    return groups | {a.name: (a.name,) for a in team(name) if a.name not in shared}


def updates_of(algorithm: Algorithm, name: str) -> list[FloatArray]:
    units, rows = range(len(algorithm.problem.units)), transitions(name, 100)
    computed = dict(algorithm.gradients.compute(rows, units, iteration=3))
    return [computed[unit] for unit in units]


@pytest.mark.parametrize("name", ACTOR_CRITICS)
def test_a_group_learns_from_the_mean_over_all_its_transitions_and_says_it(name: str) -> None:
    learner, environment = config(name), spec_of(name)
    assert isinstance(learner, ActorCritic)
    learner = replace(learner, clip_norm=1e9)
    grouped, alone = (
        replace(learner, share=share).make(environment, seed=1, device="cpu")
        for share in (share_of(name), "none")
    )
    for section in grouped.problem.sections:
        for own in alone.problem.sections:
            if own.role == section.role and set(own.agents) <= set(section.agents):
                alone.parameters.view(own.id)[:] = grouped.parameters.view(section.id)
    alone.parameters.written()
    single, entries = updates_of(alone, name), Entries(learner.statistics())
    acted = np.ones(len(single))  # where they collect by themselves, all have as many
    if not collects(name):
        acted = transitions(name, 100)[:, layout(name).alive].sum(0)
        assert len({*acted}) > 1
    for unit, update in zip(grouped.problem.units, updates_of(grouped, name), strict=True):
        members = [single[agent].astype(np.float64) for agent in unit.agents]
        expected: Any = np.average(members, axis=0, weights=acted[[*unit.agents]])
        gradient, size = update[: -entries.size], np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected[: -entries.size], rtol=0, atol=5e-5 * size)
        mean = entries.sums(expected[-entries.size :])
        assert entries.sums(update[-entries.size :]) == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("name", TEAMS)
def test_gradients_of_a_teams_networks_add_up_to_that_of_a_shared_one(name: str) -> None:
    learner, environment = config(name), spec_of(name)
    assert isinstance(learner, ValueLearner)
    agents = len(team(name))
    shared, apart = (
        replace(learner, share=share).make(environment, seed=1, device="cpu")
        for share in ("all", "none")
    )
    for one, own in zip(shared.problem.sections, apart.problem.sections, strict=True):
        copies = agents if own.role.endswith("agent") else 1
        apart.parameters.view(own.id)[:] = np.tile(shared.parameters.view(one.id), copies)
    apart.parameters.written()
    end, last = apart.problem.sections[0].size, -ENTRIES.size
    for expected, update in zip(updates_of(shared, name), updates_of(apart, name), strict=True):
        summed = update[:end].reshape(agents, -1).astype(np.float64).sum(0)
        found, size = np.concatenate([summed, update[end:]]), np.abs(expected[:last]).max()
        np.testing.assert_allclose(found[:last], expected[:last], rtol=0, atol=1e-5 * size)
        means = ENTRIES.sums(expected[last:])
        assert ENTRIES.sums(update[last:]) == pytest.approx(means, rel=1e-5)
