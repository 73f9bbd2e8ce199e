"""Groups of agents that share networks: units, targets, refusals; statistics beside losses."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from fullrank.algorithms import EnvironmentSpec, Problem, Unit
from fullrank.algorithms.base import register
from fullrank.algorithms.groups import Sharing
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Entries
from fullrank.common.errors import ConfigError, Unsound
from fullrank.environments import AgentSpec, Discrete
from fullrank.networks.value_networks import GroupedAgents, RecurrentAgent

PREDATORS, PREY = (0, 1), (2,)
SIDES: dict[str, tuple[str, ...]] = {"hunters": ("wolf", "lynx"), "hunted": ("hare",)}


def agent(name: str, side: str, *, observed: int = 4) -> AgentSpec:
    return AgentSpec(name=name, observation_size=observed, action=Discrete(5), side=side)


ENVIRONMENT = EnvironmentSpec(
    agents=(agent("wolf", "red"), agent("lynx", "red"), agent("hare", "blue", observed=3))
)


@register("undeclared")
@dataclass(frozen=True, slots=True, kw_only=True)
class Undeclared(MADDPG):
    """An algorithm that returns other statistics than it declares."""

    def statistics(self) -> tuple[str, ...]:
        """Return the name of one of them."""
        return ("critic_loss",)


@register("unknown")
@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(MADDPG):
    """An algorithm that divides a statistic by zero."""

    def losses(self, agent: int, nets: Any, batch: Transitions, draws: Draws) -> Any:
        losses, statistics = MADDPG.losses(self, agent, nets, batch, draws)
        return losses, {**statistics, "critic_loss": float("nan")}


def problem(share: Sharing, **settings: Any) -> Problem:
    return MADDPG(batch_size=24, hidden=12, share=share, **settings).problem(ENVIRONMENT)


@pytest.mark.parametrize("share", ["side", SIDES])
def test_a_unit_is_a_group_and_a_micro_batch_and_a_target_the_sum_over_a_group(
    share: Sharing,
) -> None:
    summed, whole = problem(share, micro_batches=2), problem(share)
    assert summed.units == (*(Unit(PREDATORS, k) for k in (0, 1)), *(Unit(PREY, k) for k in (0, 1)))
    assert summed.target is not None
    assert summed.target.tolist() == [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
    assert (whole.units, whole.target) == ((Unit(PREDATORS), Unit(PREY)), None)
    roles = ("critic", "policy", "target_critic", "target_policy")
    networks = [(role, agents) for role in roles for agents in (PREDATORS, PREY)]
    exponents = [("exponent", agents) for agents in (PREDATORS, PREY)]
    assert [(each.role, each.agents) for each in summed.sections] == networks + exponents
    assert [(each.role, each.agents) for each in whole.sections] == networks
    assert [summed.sections[needs[-1]].role for needs in summed.reads] == ["exponent"] * 4


@pytest.mark.parametrize(
    ("share", "complaint"),
    [
        ("all", "wolf and hare cannot share networks, because their observations"),
        ({"hunters": ("wolf", "lynx")}, "have wolf, lynx: name each of wolf, lynx, hare once"),
        ({**SIDES, "again": ("wolf",)}, "have wolf, lynx, hare, wolf: name each of"),
        ({}, "have no agent: name each of"),
    ],
)
def test_groups_of_unlike_agents_or_not_of_every_agent_are_refused(
    share: Sharing, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as error:
        problem(share)
    assert "\n" not in str(error.value)


def test_agents_with_critics_of_two_kinds_are_refused() -> None:
    alike = replace(ENVIRONMENT, agents=(*ENVIRONMENT.agents[:2], agent("hare", "blue")))
    with pytest.raises(ConfigError, match="wolf and hare cannot share networks"):
        MADDPG(share="all", ddpg_sides=("blue",)).problem(alike)
    assert len(MADDPG(share="all").problem(alike).units) == 1


def test_statistics_that_are_not_declared_are_named() -> None:
    gradients = Undeclared(batch_size=4).make(ENVIRONMENT, seed=0, device="cpu").gradients
    rows = torch.zeros(4, ENVIRONMENT.layout.row_size).numpy()
    with pytest.raises(ConfigError) as error:
        list(gradients.compute(rows, [0], iteration=0))
    assert str(error.value) == (
        "losses return the statistics ['actor_loss', 'critic_loss', 'q_taken_mean'], and "
        "statistics() declares ['critic_loss']: declare those that are returned"
    )


def test_names_that_optimisers_record_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"declares grad_norm, which the optimiser records"):
        Entries(("loss", "grad_norm/0"))


def test_a_statistic_that_is_no_number_beside_a_gradient_that_is_ends_the_run() -> None:
    gradients = Unknown(batch_size=4).make(ENVIRONMENT, seed=0, device="cpu").gradients
    rows = torch.zeros(4, ENVIRONMENT.layout.row_size).numpy()
    with pytest.raises(Unsound, match="losses return nan as the statistic 'critic_loss'"):
        list(gradients.compute(rows, [0], iteration=0))


def test_each_agent_of_a_team_has_the_values_of_its_groups_network() -> None:
    groups, generator = ((0, 2), (1,)), torch.Generator().manual_seed(0)
    team = GroupedAgents([RecurrentAgent(4, 6, 3) for _ in groups], groups)
    inputs = torch.randn(5, 2 * 3, 4, generator=generator)
    state = torch.randn(2 * 3, 6, generator=generator)
    values, after = team(inputs, state)
    for row in range(6):
        own, last = team.of(row % 3)(inputs[:, row : row + 1], state[row : row + 1])
        torch.testing.assert_close(values[:, row : row + 1], own)
        torch.testing.assert_close(after[row : row + 1], last)


def test_the_exported_policy_of_an_agent_is_that_of_its_group() -> None:
    learner = QMIX(share="side", identity=False, hidden=6)
    actor = learner.make(ENVIRONMENT, seed=0, device="cpu").actor
    wolf, lynx, hare = (actor.policy(k).input_gates for k in range(3))  # type: ignore[union-attr]
    assert (wolf == lynx).all()
    assert (wolf != hare).any()
