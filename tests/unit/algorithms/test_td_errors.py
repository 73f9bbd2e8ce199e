"""Temporal differences that each step is given where it is played, by which replay draws."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.algorithms import plain_values as plain

from fullrank.algorithms.iql import IQL
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.qplex import QPLEX
from fullrank.algorithms.values import TD_ERROR, ValueLearner
from fullrank.algorithms.vdn import VDN
from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.config.plugins import spec_of
from fullrank.training.heads import Heads
from fullrank.wiring.containers import container_of
from fullrank.wiring.training import training_of

SMALL: dict[str, Any] = {"batch_size": 7, "hidden": 11, "discount": 0.9, "td_errors": True}
LEARNERS: dict[str, ValueLearner] = {
    "iql": IQL(**SMALL),
    "vdn": VDN(**SMALL, trace=0.6),
    "normalised": VDN(**SMALL, layer_norm=True),
    "qmix": QMIX(**SMALL, mixing=4, hypernet=5),
    "qplex": QPLEX(**SMALL, mixing=4, hypernet=5, heads=2),
}
TEAM = (
    *("algorithm.name=qmix", "algorithm.hidden=8", "algorithm.batch_size=4"),
    *("environment.name=smac_lite", "environment.map=3m", "sampling.method=prioritised"),
)


@pytest.mark.parametrize("name", ["iql", "vdn", "normalised", "qmix"])
def test_errors_are_those_of_the_networks_that_played(name: str) -> None:
    learner = LEARNERS[name]
    nets = plain.moved(learner.initial(plain.ENVIRONMENT, seed=1, device=torch.device("cpu")))
    layout, agent = learner.layout(plain.ENVIRONMENT), plain.parameters(nets, "agent")
    rows = plain.played(layout, 7)
    learner.prepare(rows, nets, layout)

    def mixed(own: list[torch.Tensor], row: np.ndarray[Any, Any]) -> torch.Tensor:
        values = torch.stack(own)
        if name == "iql":
            return values
        if name in ("vdn", "normalised"):
            return values.sum().view(1)
        state = torch.from_numpy(row[layout.state].astype(np.float64))
        return plain.monotonic(plain.parameters(nets, "mixer"), values, state).view(1)

    for episode in plain.episodes_of(rows, layout):
        values = plain.values(learner, agent, episode, layout)
        best = [
            mixed(plain.best_of(own, own, row, layout)[0], row)
            for own, row in zip(values[1:], episode[1:], strict=True)
        ]
        taken = [
            mixed(plain.chosen_of(own, row[layout.action].astype(int).tolist()), row)
            for own, row in zip(values[:-1], episode[:-1], strict=True)
        ]
        returns = plain.returns(learner, best, episode, layout)
        errors = (torch.stack(returns) - torch.stack(taken)).abs().amax(1)
        found = episode[:, layout.columns[TD_ERROR]][:, 0]
        np.testing.assert_allclose(found[:-1], errors.detach().numpy(), rtol=1e-5, atol=1e-5)
        assert errors.any()
        assert found[-1] == 0


@pytest.mark.parametrize("name", LEARNERS)
def test_errors_of_an_episode_do_not_depend_on_those_beside_it(name: str) -> None:
    learner = LEARNERS[name]
    nets = plain.moved(learner.initial(plain.ENVIRONMENT, seed=1, device=torch.device("cpu")))
    layout = learner.layout(plain.ENVIRONMENT)
    rows = plain.played(layout, 7)
    learner.prepare(rows, nets, layout)
    plain.assert_alone(learner.prepare, rows, nets, layout)


def test_errors_of_standardised_rewards_are_refused() -> None:
    """Where a step is played, no minibatch tells how large its reward is."""
    with pytest.raises(ConfigError, match="td_errors are those of rewards as they are paid; leave"):
        replace(LEARNERS["vdn"], standardise_rewards=True)


def test_those_that_play_are_sent_all_networks_that_errors_need() -> None:
    problem = LEARNERS["qmix"].problem(plain.ENVIRONMENT)
    assert {problem.sections[id_].role for id_ in problem.prepared_by} == {"agent", "mixer"}
    without = replace(LEARNERS["qmix"], td_errors=False).problem(plain.ENVIRONMENT)
    assert not without.prepared_by
    assert without.row_size == problem.row_size - 1


@pytest.mark.parametrize("stored", [False, True])
def test_draws_and_the_warm_up_are_by_the_errors_that_are_stored(stored: bool) -> None:
    settings = [*TEAM, f"algorithm.td_errors={stored}".lower()]
    config = load(environ={}, overrides=settings).check().config
    training = training_of(config)
    try:
        rows, layout = training.collector.warm_up(), training.problem.episodes
    finally:
        training.collector.close()
    assert layout is not None
    priority = training.trainer.sample(0, tail=0, head=len(rows)).priority
    assert priority is not None
    by = layout.columns[TD_ERROR] if stored else layout.paid
    assert priority.entries == by
    assert rows[:, by].any()


def test_containers_hand_over_by_returns_and_refuse_errors() -> None:
    settings = (*TEAM, "algorithm.td_errors=true")
    config = load(environ={}, overrides=settings, topology="cmarl").check().config
    environment = spec_of(config)
    with pytest.raises(ConfigError, match="td_errors"):
        container_of(config, environment, number=0, heads=Heads(1))
