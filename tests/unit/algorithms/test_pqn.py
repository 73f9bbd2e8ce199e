"""PQN's targets, loss and statistics against a plain statement in float64, and what it learns."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.algorithms import plain_values as plain
from torch import Tensor

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.pqn import ENTRIES, PQN, TARGET
from fullrank.algorithms.trajectories import SCALE
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.config import load
from fullrank.environments import make_environment
from fullrank.local import LocalRun
from fullrank.training.evaluation import Greedy, evaluate

SMALL: dict[str, Any] = {"batch_size": 7, "micro_batches": 3, "hidden": 11, "discount": 0.9}
LEARNERS: dict[str, PQN] = {
    "alone": PQN(**SMALL, mixer="none"),
    "sum": PQN(**SMALL),
    "networks apart": PQN(**SMALL, share="none", layer_norm=False),
    "monotonic": PQN(**SMALL, mixer="monotonic", mixing=4, hypernet=5),
    "monotonic with memory": PQN(
        **SMALL, mixer="monotonic", mixing=4, hypernet=5, recurrent=True, last_action=True
    ),
    "one step": PQN(**SMALL, trace=0.0),
    "ended": PQN(**SMALL, time_limit_bootstrap=False),
    "one step, ended": PQN(**SMALL, trace=0.0, time_limit_bootstrap=False),
}


def built(learner: PQN) -> tuple[Networks, FloatArray]:
    """Networks at random parameters, and rows that were prepared with them."""
    nets = learner.initial(plain.ENVIRONMENT, seed=1, device=torch.device("cpu"))
    layout = learner.layout(plain.ENVIRONMENT)
    rows = plain.played(layout, 7)
    learner.prepare(rows, plain.moved(nets), layout)
    return nets, rows


def mixed(learner: PQN, nets: Networks, own: list[Tensor], state: FloatArray) -> Tensor:
    """What temporal differences are taken of, shape (values,)."""
    values = torch.stack(own)
    if learner.mixer == "none":
        return values
    if learner.mixer == "sum":
        return values.sum().view(1)
    named = plain.parameters(nets, "mixer")
    return plain.monotonic(named, values, torch.from_numpy(state.astype(np.float64))).view(1)


@pytest.mark.parametrize("name", LEARNERS)
def test_targets_are_the_papers_returns_of_the_networks_that_played(name: str) -> None:
    learner = LEARNERS[name]
    nets, rows = built(learner)
    layout, named = learner.layout(plain.ENVIRONMENT), plain.parameters(nets, "agent")
    for episode in plain.episodes_of(rows, layout):
        values = plain.values(learner, named, episode, layout)
        following = [
            mixed(learner, nets, plain.best_of(own, own, row, layout)[0], row[layout.state])
            for own, row in zip(values[1:], episode[1:], strict=True)
        ]
        expected = torch.stack(plain.returns(learner, following, episode, layout))
        found = episode[:-1, layout.columns[TARGET]]
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
        assert not episode[-1, layout.columns[TARGET]].any()


@pytest.mark.parametrize("name", LEARNERS)
def test_units_add_up_to_the_gradient_of_the_papers_loss(name: str) -> None:
    learner = LEARNERS[name]
    nets, rows = built(learner)
    layout = learner.layout(plain.ENVIRONMENT)
    computing = learner.readable(plain.ENVIRONMENT, nets, torch.device("cpu"))
    updates = [update for _, update in computing.compute(rows, range(3), iteration=0)]
    summed = np.sum(np.asarray(updates, np.float64), axis=0)
    named = {role: plain.parameters(nets, role) for role in nets.parameters.groups[0].networks}
    errors, taken = [], []
    for episode in plain.episodes_of(rows, layout):
        values = plain.values(learner, named["agent"], episode, layout)[:-1]
        for own, row in zip(values, episode[:-1], strict=True):
            chosen = torch.stack(plain.chosen_of(own, row[layout.action].astype(int).tolist()))
            state = torch.from_numpy(row[layout.state].astype(np.float64))
            if learner.mixer == "sum":
                chosen = chosen.sum().view(1)
            elif learner.mixer == "monotonic":
                chosen = plain.monotonic(named["mixer"], chosen, state).view(1)
            target = torch.from_numpy(row[layout.columns[TARGET]].astype(np.float64))
            errors.append((target - chosen) ** 2)
            taken.append(chosen)
    loss = torch.cat(errors).mean()
    statistics = {"td_loss": loss.item(), "q_values": torch.cat(taken).mean().item()}
    assert ENTRIES.sums(summed[-ENTRIES.size :]) == pytest.approx(statistics, rel=1e-5, abs=1e-6)
    plain.assert_gradient(nets, summed[: -ENTRIES.size] / SCALE, loss, named)


@pytest.mark.parametrize("name", LEARNERS)
def test_targets_of_an_episode_do_not_depend_on_those_beside_it(name: str) -> None:
    learner = LEARNERS[name]
    nets, rows = built(learner)
    layout = learner.layout(plain.ENVIRONMENT)
    plain.assert_alone(learner.prepare, rows, nets, layout)


def test_nothing_is_read_of_target_networks() -> None:
    problem = PQN(mixer="monotonic").problem(plain.ENVIRONMENT)
    roles = [problem.sections[id_].role for id_ in problem.needs(0)]
    assert roles == ["agent", "mixer", "exponent"]
    assert [problem.sections[id_].role for id_ in problem.prepared_by] == ["agent", "mixer"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"micro_batches": 9}, "micro_batches = 9 must lie between 1 and"),
        ({"epochs": 0}, "epochs, mixing and hypernet must be at least 1"),
        ({"anneal_iterations": -1}, "anneal_iterations must not be below 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PQN(**settings)


TINY: dict[str, Any] = {
    "algorithm.name": "pqn",
    "algorithm.hidden": 16,
    "algorithm.batch_size": 8,
    "algorithm.micro_batches": 1,
    "algorithm.learning_rate": 0.01,
    "environment.agents": 0,
    "environment.copies": 16,
}


def greedy_mean(options: dict[str, Any]) -> float:
    """Train, and return the mean of greedy play."""
    run = LocalRun(load(options=TINY | options).check().config, coded=False)
    run.train()
    environment = make_environment(options["environment.name"], agents=0, copies=4)
    greedy = Greedy(run.training.algorithm.actor)
    return float(evaluate(environment, greedy, 8, seed=1).returns.mean())


def test_the_statistics_have_the_names_of_cleanrl() -> None:
    options = TINY | {"environment.name": "two_step_game", "iterations": 8}
    options["algorithm.anneal_iterations"] = 8
    run = LocalRun(load(options=options).check().config, coded=False)
    told = [each.statistics for each in run]
    assert {"td_loss", "q_values", "learning_rate", "epsilon", "grad_norm"} <= told[0].keys()
    rates = [each["learning_rate"] for each in told]
    assert rates == pytest.approx([0.01 * (1 - done / 8) for done in range(8)])


@pytest.mark.integration
@pytest.mark.parametrize(("mixer", "earned"), [("sum", 7.0), ("monotonic", 8.0)])
def test_the_two_step_game_is_learned_as_far_as_the_mixer_can_say(
    mixer: str, earned: float
) -> None:
    """The choice that needs a partner earns 8, which a sum cannot express."""
    options = {
        "environment.name": "two_step_game",
        "algorithm.mixer": mixer,
        "algorithm.exploration_end": 1.0,
        "algorithm.trace": 0.0,
        "iterations": 320,
    }
    assert greedy_mean(options) == earned
