"""COMA's losses and targets against a plain statement in float64, and what it learns."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.coma import COMA, ENTRIES
from fullrank.algorithms.trajectories import SCALE
from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray
from fullrank.config import load
from fullrank.environments import AgentSpec, Continuous, Discrete, make_environment
from fullrank.local import LocalRun
from fullrank.replay.episodes import NO_ACTION, episodes_in
from fullrank.training.evaluation import Greedy, evaluate

SIZES, MOST, STATE = ((7, 5), (4, 3), (7, 4)), 5, 6
"""Entries of the observation and actions of each agent."""
TEAM = tuple(
    AgentSpec(name=f"agent_{number}", observation_size=seen, action=Discrete(actions))
    for number, (seen, actions) in enumerate(SIZES)
)
ENVIRONMENT = EnvironmentSpec(agents=TEAM, state_size=STATE)
SMALL: dict[str, Any] = {"batch_size": 7, "micro_batches": 3, "hidden": 11}
LEARNERS = {
    "shared": COMA(**SMALL, entropy_weight=0.3),
    "normalised": COMA(**SMALL, layer_norm=True),
    "apart": COMA(**SMALL, share="none", reward="own"),
    "ended": COMA(**SMALL, time_limit_bootstrap=False),
    "ended apart": COMA(**SMALL, share="none", reward="own", time_limit_bootstrap=False),
    "pair": COMA(**SMALL, share={"pair": ("agent_0", "agent_2"), "one": ("agent_1",)}),
}


def played(learner: COMA) -> FloatArray:
    """Random episodes of agents that sometimes cannot act, leave the game and come back.

    Derived columns are random.
    """
    layout, generator = learner.layout(ENVIRONMENT), np.random.default_rng(3)
    rows = layout.synthetic(generator, 7)
    rows[:, layout.available] = generator.random((len(rows), sum(layout.action_sizes))) < 0.6
    starts = np.cumsum((0, *layout.action_sizes[:-1])) + layout.available.start
    actions = rows[:, layout.action].astype(int)
    for agent, start in enumerate(starts):
        rows[np.arange(len(rows)), start + actions[:, agent]] = 1.0
    idle = generator.random((len(rows), layout.agents)) < 0.2
    rows[:, layout.action][idle] = NO_ACTION
    if layout.own_rewards:
        gone, over = generator.random((2, len(rows), layout.agents)) < 0.2
        rows[:, layout.earns][gone], rows[:, layout.action][gone] = 0.0, NO_ACTION
        rows[:, layout.ends] = over
    rows[rows[:, layout.length] > 0, layout.action] = 0.0
    return rows


class Plain:
    """The networks of one group in float64, and what they say of a step."""

    def __init__(self, learner: COMA, algorithm: Algorithm, agents: tuple[int, ...]) -> None:
        self.layout, self.agents = learner.layout(ENVIRONMENT), agents
        self.normalised = learner.layer_norm
        self.wide, self.most = (max(SIZES[agent][part] for agent in agents) for part in (0, 1))
        self.identities = len(agents) if len(agents) > 1 else 0
        seen, self.algorithm = self.wide + self.identities, algorithm
        self.policy = self.layers("policy", seen)
        self.critic = self.layers("critic", STATE + seen + 3 * MOST)
        self.target = self.layers("target_critic", STATE + seen + 3 * MOST)

    def layers(self, role: str, inputs: int) -> list[Tensor]:
        (id_,) = (
            each.id
            for each in self.algorithm.problem.sections
            if (each.role, each.agents) == (role, self.agents)
        )
        flat = torch.from_numpy(self.algorithm.parameters.view(id_).astype(np.float64))
        shapes = [(after, before + 1) for before, after in pairwise([inputs, 11, 11, self.most])]
        parts = torch.split(flat, [a * b for a, b in shapes])
        return [p.view(shape).requires_grad_() for p, shape in zip(parts, shapes, strict=True)]

    def through(self, layers: list[Tensor], inputs: Tensor) -> Tensor:
        for number, layer in enumerate(layers):
            inputs = layer @ torch.cat([inputs, torch.ones(1, dtype=torch.float64)])
            if number < len(layers) - 1:
                if self.normalised:
                    deviation = (inputs.var(correction=0) + 1e-5).sqrt()
                    inputs = (inputs - inputs.mean()) / deviation
                inputs = inputs.relu()
        return inputs

    def own(self, step: Tensor, agent: int) -> tuple[Tensor, Tensor]:
        """The padded observation and the identity."""
        first = sum(size for size, _ in SIZES[:agent])
        own = torch.zeros(self.wide, dtype=torch.float64)
        own[: SIZES[agent][0]] = step[self.layout.observation][first : first + SIZES[agent][0]]
        number = self.agents.index(agent)
        return own, torch.eye(self.identities, dtype=torch.float64)[number : number + 1].view(-1)

    def offered(self, step: Tensor, agent: int) -> Tensor:
        start = sum(count for _, count in SIZES[:agent])
        return step[self.layout.available][start : start + SIZES[agent][1]] > 0

    def logits(self, step: Tensor, agent: int) -> Tensor:
        return self.through(self.policy, torch.cat(self.own(step, agent)))[: SIZES[agent][1]]

    def values(self, layers: list[Tensor], step: Tensor, actions: Tensor, agent: int) -> Tensor:
        """Values of the agent's actions beside those of the others."""
        others = torch.zeros(3, MOST, dtype=torch.float64)
        for other, action in enumerate(actions.int().tolist()):
            if other != agent and action >= 0:
                others[other, action] = 1.0
        own, identity = self.own(step, agent)
        return self.through(
            layers, torch.cat([step[self.layout.state], own, others.view(-1), identity])
        )


def plain(
    learner: COMA, algorithm: Algorithm, rows: FloatArray, agents: tuple[int, ...]
) -> tuple[Array, Mapping[str, float]]:
    """Gradient and statistics of one group, step by step and agent by agent."""
    group, layout = Plain(learner, algorithm, agents), learner.layout(ENVIRONMENT)
    every, chosen = list[dict[str, Tensor]](), list[dict[str, Tensor]]()
    for row in torch.from_numpy(rows.astype(np.float64)):
        if row[layout.length] > 0:
            continue
        for agent in agents:
            action, offered = int(row[layout.action][agent]), group.offered(row, agent)
            values = group.values(group.critic, row, row[layout.action], agent)
            expected = sum(row[layout.columns[n]][agent] for n in ("value", "advantage"))
            taken = values[max(action, 0)]
            if not layout.own_rewards or row[layout.earns][agent]:
                every.append(
                    {
                        "qf1_loss": (taken - expected) ** 2 / 2,
                        "qf1_values": taken,
                        "target_mean": torch.as_tensor(expected),
                    }
                )
            if action < 0 or int(offered.sum()) < 2:
                continue
            log_pi = torch.log_softmax(group.logits(row, agent)[offered], 0)
            counterfactual = values[: len(offered)][offered]
            advantage = (taken - (log_pi.exp() * counterfactual).sum()).detach()
            gained = advantage * log_pi[int(offered[:action].sum())]
            chosen.append({"actor_loss": -gained, "entropy": -(log_pi.exp() * log_pi).sum()})
    means = {
        name: torch.stack([term[name] for term in terms]).mean()
        for terms in (every, chosen)
        for name in terms[0]
    }
    loss = means["actor_loss"] + means["qf1_loss"] - learner.entropy_weight * means["entropy"]
    gradients = torch.autograd.grad(loss, [*group.policy, *group.critic])
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()
    return flat, {name: each.item() for name, each in means.items()}


def shaken(learner: COMA) -> Algorithm:
    algorithm, generator = learner.make(ENVIRONMENT, seed=1, device="cpu"), np.random.default_rng(0)
    for section in algorithm.problem.sections:
        if section.role != "exponent":
            view = algorithm.parameters.view(section.id)
            view += generator.normal(scale=0.3, size=view.shape).astype(np.float32)
    return algorithm


@pytest.mark.parametrize("name", LEARNERS)
def test_units_add_up_to_the_gradient_of_the_papers_losses(name: str) -> None:
    learner = LEARNERS[name]
    algorithm, rows = shaken(learner), played(learner)
    units = range(len(algorithm.problem.units))
    updates = dict(algorithm.gradients.compute(rows, units, iteration=0))
    for agents in (own.agents for own in learner.members(ENVIRONMENT)):
        own = [unit for unit in units if algorithm.problem.units[unit].agents == agents]
        summed = np.sum([updates[unit].astype(np.float64) for unit in own], axis=0)
        gradient, statistics = plain(learner, algorithm, rows, agents)
        found = summed[: len(gradient)] / SCALE
        np.testing.assert_allclose(found, gradient, rtol=0, atol=1e-5 * np.abs(gradient).max())
        entries = summed[len(gradient) : len(gradient) + ENTRIES.size]
        assert ENTRIES.sums(entries) == pytest.approx(statistics, rel=1e-5)


@pytest.mark.parametrize("name", LEARNERS)
def test_targets_are_the_lambda_returns_of_the_target_critic(name: str) -> None:
    learner = LEARNERS[name]
    algorithm, rows = shaken(learner), played(learner)
    layout = learner.layout(ENVIRONMENT)
    assert algorithm.prepare is not None
    for place in episodes_in(rows, layout.length):
        algorithm.prepare(rows[place])
        steps = torch.from_numpy(rows[place].astype(np.float64))
        groups = [Plain(learner, algorithm, own.agents) for own in learner.members(ENVIRONMENT)]
        of = {agent: group for group in groups for agent in group.agents}
        actions = [step[layout.action] for step in steps]
        assert not actions[-1].any()
        offers = [of[agent].offered(steps[-1], agent) for agent in range(3)]
        actions[-1] = torch.tensor(
            [
                int(of[k].logits(steps[-1], k).masked_fill(~offers[k], -torch.inf).argmax())
                if offers[k].any()
                else NO_ACTION
                for k in range(3)
            ]
        )
        for agent, group in of.items():
            values = [
                group.values(group.target, step, taken, agent)[max(int(taken[agent]), 0)].item()
                for step, taken in zip(steps, actions, strict=True)
            ]
            later = values[-1]
            for number in reversed(range(len(steps) - 1)):
                step = steps[number]
                paid = step[layout.rewards][agent] if layout.own_rewards else step[layout.reward]
                over, leaves = step[layout.terminated], False
                if layout.own_rewards:
                    over, leaves = (
                        step[layout.ends][agent],
                        not steps[number + 1][layout.earns][agent],
                    )
                limit = leaves or number == len(steps) - 2
                if limit and not learner.time_limit_bootstrap:
                    over = torch.ones(())
                goes_on = learner.discount * (1 - over.item())
                later = values[number + 1] if leaves else later
                mean = (1 - learner.trace) * values[number + 1] + learner.trace * later
                later = paid.item() + goes_on * mean
                value, advantage = (step[layout.columns[n]][agent] for n in layout.columns)
                assert value.item() == pytest.approx(values[number], rel=1e-5, abs=1e-6)
                assert (value + advantage).item() == pytest.approx(later, rel=1e-5, abs=1e-5)


def test_continuous_actions_are_refused() -> None:
    box = AgentSpec(name="arm", observation_size=2, action=Continuous((-1.0,), (1.0,)))
    with pytest.raises(ConfigError, match=r"arm has continuous actions, .*; use mappo"):
        COMA().problem(EnvironmentSpec(agents=(box,)))


def run(**options: Any) -> LocalRun:
    settings: dict[str, Any] = {
        "algorithm.name": "coma",
        "algorithm.batch_size": 16,
        "algorithm.hidden": 32,
        "algorithm.learning_rate": 0.005,
        "algorithm.target_every": 5,
        "environment.name": "two_step_game",
        "environment.agents": 0,
        "environment.copies": 16,
        "iterations": 60,
    }
    chosen = {key.replace("__", "."): value for key, value in options.items()}
    return LocalRun(load(options=settings | chosen).check().config, coded=False)


def test_the_target_critic_is_copied_every_few_updates() -> None:
    learned = run(iterations=5)
    sections = {each.role: each.id for each in learned.training.problem.sections}
    view = learned.training.algorithm.parameters.view
    first = view(sections["target_critic"]).copy()
    for number, _ in enumerate(learned, start=1):
        critic, target = (view(sections[role]) for role in ("critic", "target_critic"))
        assert np.array_equal(target, first if number < 5 else critic)
        assert not np.array_equal(critic, first)


@pytest.mark.integration
@pytest.mark.parametrize("recurrent", [False, True])
def test_the_two_step_game_is_learned(recurrent: bool) -> None:
    """Random play earns 4.1 on average; the choice that needs no partner earns 7."""
    learned = run(algorithm__recurrent=recurrent)
    learned.train()
    environment = make_environment("two_step_game", agents=0, copies=4)
    actor = Greedy(learned.training.algorithm.actor)
    assert evaluate(environment, actor, 8, seed=1).returns.mean() >= 7.0
