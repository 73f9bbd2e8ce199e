"""QPLEX's loss and statistics against a plain statement in float64, and what its mixer can say."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.algorithms import plain_values as plain
from torch import Tensor

from fullrank.algorithms.qplex import QPLEX
from fullrank.algorithms.trajectories import ENTRIES, SCALE
from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.environments import make_environment
from fullrank.local import LocalRun
from fullrank.networks.value_networks import DuellingMixer
from fullrank.training.evaluation import Greedy, evaluate

SMALL: dict[str, Any] = {
    "batch_size": 7,
    "micro_batches": 3,
    "hidden": 11,
    "discount": 0.9,
    "mixing": 4,
    "hypernet": 5,
    "heads": 3,
}
LEARNERS: dict[str, QPLEX] = {
    "with memory": QPLEX(**SMALL),
    "without memory": QPLEX(**SMALL, recurrent=False, trace=0.6, double=False),
    "networks apart": QPLEX(**SMALL, share="none", last_action=False),
}
AGENTS, MOST = 3, 5


def q_tot(
    named: plain.Named, own: Tensor, best: Tensor, actions: list[int], state: Tensor
) -> Tensor:
    """Q_tot of [Wang21b]: V + sum of lambda A; no gradient passes through A."""
    weights = plain.two(named, "weight", state).abs() + 1e-10
    bias = plain.two(named, "bias", state)
    taken = torch.zeros(AGENTS, MOST, dtype=torch.float64)
    for agent, action in enumerate(actions):
        if action >= 0:
            taken[agent, action] = 1.0
    importance = torch.zeros(AGENTS, dtype=torch.float64)
    key = plain.layer(named, "key", state).abs() + 1e-10
    by_agent = plain.layer(named, "by_agent", state).sigmoid()
    by_action = plain.layer(named, "by_action", torch.cat([state, taken.flatten()])).sigmoid()
    for head in range(len(key)):
        own_part = slice(head * AGENTS, (head + 1) * AGENTS)
        importance = importance + key[head] * by_agent[own_part] * by_action[own_part]
    advantage = (weights * (own - best)).detach()
    value = weights * own + bias - advantage  # w max Q + b, though the gradient is that of q
    return (value + importance * advantage).sum()


@pytest.mark.parametrize("name", LEARNERS)
def test_units_add_up_to_the_gradient_of_the_papers_loss(name: str) -> None:
    learner = LEARNERS[name]
    nets = plain.moved(learner.initial(plain.ENVIRONMENT, seed=1, device=torch.device("cpu")))
    layout = learner.layout(plain.ENVIRONMENT)
    rows = plain.played(layout, 7)
    computing = learner.readable(plain.ENVIRONMENT, nets, torch.device("cpu"))
    updates = [update for _, update in computing.compute(rows, range(3), iteration=0)]
    summed = np.sum(np.asarray(updates, np.float64), axis=0)
    named = {
        f"{kind}{role}": plain.parameters(nets, f"{kind}{role}")
        for role in ("agent", "mixer")
        for kind in ("", "target_")
    }
    errors, taken, aims = [], [], []
    for episode in plain.episodes_of(rows, layout):
        online, target = (
            plain.values(learner, named[role], episode, layout)
            for role in ("agent", "target_agent")
        )
        states = torch.from_numpy(episode[:, layout.state].astype(np.float64))
        following = []
        for number, row in list(enumerate(episode))[1:]:
            judge = online[number] if learner.double else target[number]
            own, actions = plain.best_of(target[number], judge, row, layout)
            best, _ = plain.best_of(target[number], target[number], row, layout)
            parts = torch.stack(own), torch.stack(best), actions, states[number]
            following.append(q_tot(named["target_mixer"], *parts).detach())
        expected = plain.returns(learner, following, episode, layout)
        for number, row in enumerate(episode[:-1]):
            actions = row[layout.action].astype(int).tolist()
            own = plain.chosen_of(online[number], actions)
            best, _ = plain.best_of(online[number], online[number], row, layout)
            parts = torch.stack(own), torch.stack(best), actions, states[number]
            taken.append(q_tot(named["mixer"], *parts))
            aims.append(expected[number])
            errors.append(aims[-1] - taken[-1])
    error = torch.stack(errors)
    loss = error.square().mean()
    statistics = {
        "loss": loss.item(),
        "td_error_abs": error.abs().mean().item(),
        "q_taken_mean": torch.stack(taken).mean().item() / AGENTS,
        "target_mean": torch.stack(aims).mean().item() / AGENTS,
    }
    assert ENTRIES.sums(summed[-ENTRIES.size :]) == pytest.approx(statistics, rel=1e-5)
    online_roles = {role: named[role] for role in ("agent", "mixer")}
    plain.assert_gradient(nets, summed[: -ENTRIES.size] / SCALE, loss, online_roles)


def test_the_best_joint_action_is_that_of_each_agents_best() -> None:
    """Individual and global maxima agree, whatever the parameters are."""
    learner = LEARNERS["without memory"]
    nets = plain.moved(learner.initial(plain.ENVIRONMENT, seed=2, device=torch.device("cpu")))
    assert isinstance(nets.mixer[0], DuellingMixer)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1, 1, AGENTS, MOST, generator=generator)
    state = torch.randn(1, 1, 6, generator=generator)
    every = torch.ones_like(values, dtype=torch.bool)
    found = {
        actions: learner.joint(
            nets, values, torch.tensor(actions).view(1, 1, -1), every, state, target=False
        ).item()
        for actions in product(range(MOST), repeat=AGENTS)
    }
    assert max(found, key=lambda actions: found[actions]) == tuple(values.argmax(-1).flatten())
    assert len(set(found.values())) > MOST ** (AGENTS - 1)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="mixing, hypernet and heads must be at least 1"):
        QPLEX(heads=0)


@pytest.mark.integration
def test_the_two_step_game_is_learned() -> None:
    """The choice that needs a partner earns 8, which a sum of values cannot express."""
    options: dict[str, Any] = {
        "algorithm.name": "qplex",
        "algorithm.hidden": 16,
        "algorithm.recurrent": False,
        "algorithm.micro_batches": 1,
        "algorithm.optimiser": "adam",
        "algorithm.learning_rate": 0.005,
        "algorithm.exploration_end": 1.0,
        "collect.warmup": 200,
        "environment.name": "two_step_game",
        "environment.agents": 0,
        "environment.copies": 4,
        "iterations": 300,
    }
    run = LocalRun(load(options=options).check().config, coded=False)
    run.train()
    environment = make_environment("two_step_game", agents=0, copies=4)
    greedy = Greedy(run.training.algorithm.actor)
    assert evaluate(environment, greedy, 8, seed=1).returns.mean() == 8.0
