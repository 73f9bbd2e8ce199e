"""Groups of agents that share networks, and statistics beside losses, in coded runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullrank.algorithms import Problem, Unit
from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.groups import Groups, Networks
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Statistics
from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.local import LocalIteration, LocalRun
from fullrank.training.centralised import Centralised

PREDATORS, PREY = (0, 1), (2,)
SEED = 3
TINY: dict[str, Any] = {
    "seed": SEED,
    "iterations": 4,
    "environment.name": "predator_prey",
    "environment.agents": 3,
    "environment.copies": 2,
    "collect.steps": 10,
    "collect.warmup": 60,
    "collect.warmup_copies": 3,
    "algorithm.batch_size": 24,
    "algorithm.hidden": 12,
    "learners": 6,
}
CODES: dict[str, dict[str, Any]] = {
    "centralised": {},
    "fractional": {"code.name": "fractional"},
    "mds": {"code.name": "mds"},
    "late": {"code.name": "mds", "stragglers.name": "fixed_k", "stragglers.k": 1},
}


@register("sides")
@dataclass(frozen=True, slots=True, kw_only=True)
class Sides(MADDPG):
    """MADDPG whose agents of a side share their networks, with statistics beside its losses."""

    def groups(self, environment: EnvironmentSpec) -> Groups:
        """Return the predators, and the prey."""
        return PREDATORS, PREY

    def statistics(self) -> tuple[str, ...]:
        """Return the names of two statistics."""
        return "critic_loss", "rewarded"

    def losses(  # type: ignore[override]
        self, agent: int, nets: Networks, batch: Transitions, draws: Draws
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Return the losses of MADDPG; its critic's, and the mean reward."""
        losses = MADDPG.losses(self, agent, nets, batch, draws)
        assert isinstance(losses, Mapping)
        rewarded = (batch.weight[agent] * batch.reward[agent]).sum()
        return losses, {"critic_loss": losses["critic"], "rewarded": rewarded}


@register("undeclared")
@dataclass(frozen=True, slots=True, kw_only=True)
class Undeclared(Sides):
    """An algorithm that returns other statistics than it declares."""

    def statistics(self) -> tuple[str, ...]:
        """Return the name of one of them."""
        return ("rewarded",)


def run(*, name: str = "sides", parts: int = 2, coded: bool = True, **options: Any) -> LocalRun:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    own = {"algorithm.name": name, "algorithm.micro_batches": parts}
    return LocalRun(load(options=TINY | own | keys).check().config, coded=coded)


def problem(parts: int) -> Problem:
    return run(parts=parts).training.algorithm.problem


def test_a_unit_is_a_group_and_a_micro_batch_and_a_target_the_sum_over_a_group() -> None:
    summed, whole = problem(2), problem(1)
    assert summed.units == (*(Unit(PREDATORS, k) for k in (0, 1)), *(Unit(PREY, k) for k in (0, 1)))
    assert summed.target is not None
    assert summed.target.tolist() == [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
    assert (whole.units, whole.target) == ((Unit(PREDATORS), Unit(PREY)), None)
    roles = ("critic", "policy", "target_critic", "target_policy")
    assert [(each.role, each.agents) for each in summed.sections] == [
        (role, agents) for role in roles for agents in (PREDATORS, PREY)
    ]


@pytest.mark.parametrize("parts", [1, 2])
def test_groups_commit_the_same_bits_and_statistics_with_any_code_and_any_stragglers(
    parts: int,
) -> None:
    def trained(code: str) -> tuple[list[LocalIteration], str]:
        training = run(parts=parts, coded=code != "centralised", **CODES[code])
        return training.train(), training.parameter_digest()

    expected, digest = trained("centralised")
    names = {f"{name}/{group}" for name in ("critic_loss", "rewarded") for group in (0, 1)}
    assert all(set(each.statistics) == names for each in expected)
    for code in CODES:
        found, own = trained(code)
        assert own == digest, code
        for here, there in zip(found, expected, strict=True):
            assert here.update_digest == there.update_digest, code
            assert here.statistics == there.statistics, code


@pytest.mark.parametrize("parts", [1, 2])
def test_a_group_learns_from_the_mean_of_its_agents_losses_and_says_the_mean_statistics(
    parts: int,
) -> None:
    training = run(parts=parts, algorithm__clip_norm=1e9).training
    algorithm, environment = training.algorithm, EnvironmentSpec(agents=training.collector.agents)
    config = Sides(batch_size=24, hidden=12)
    before = config.make(environment, seed=SEED, device="cpu").parameters
    nets = Networks(partial(config.networks, environment), (PREDATORS, PREY), before)  # type: ignore[arg-type]
    assert nets.critic[0] is nets.critic[1]
    assert nets.critic[0] is not nets.critic[2]
    layout, cpu = environment.layout, torch.device("cpu")
    rows = np.random.default_rng(0).standard_normal((24, layout.row_size), dtype=np.float32)
    rows[:, layout.terminated], rows[:, layout.alive] = 1.0, 1.0  # no draw reaches the critics
    targets = Centralised(algorithm.problem, algorithm.gradients, seed=SEED).compute(
        rows, iteration=3
    )
    statistics = algorithm.optimiser.step(targets.updates)
    batch = Transitions(rows, environment.agents, device=cpu)
    draws = Draws(environment.agents, seed=SEED, key=(3,), device=cpu)
    for number, agents in enumerate((PREDATORS, PREY)):
        losses = [config.losses(agent, nets, batch, draws)[0]["critic"] for agent in agents]
        mean = torch.stack(losses).mean()
        first = next(nets.critic[agents[0]].parameters())
        (expected,) = torch.autograd.grad(mean, [first])
        moment = algorithm.optimiser.state()[f"moment/{number}"]
        found = moment[: expected.shape[0] * (expected.shape[1] + 1)].reshape(len(expected), -1)
        np.testing.assert_allclose(found[:, :-1], 0.1 * expected.numpy(), rtol=1e-4, atol=1e-6)
        assert statistics[f"critic_loss/{number}"] == pytest.approx(mean.item(), rel=1e-5)
        rewards = rows[:, layout.reward][:, list(agents)].astype(np.float64)
        assert statistics[f"rewarded/{number}"] == pytest.approx(rewards.mean(), abs=1e-6)


def test_statistics_that_are_not_declared_are_named() -> None:
    with pytest.raises(ConfigError) as error:
        run(name="undeclared").train()
    assert str(error.value) == (
        "losses return the statistics ['critic_loss', 'rewarded'], and statistics() declares "
        "['rewarded']: declare those that are returned"
    )
