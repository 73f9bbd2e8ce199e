"""SAC's losses against a plain statement in float64, its draws, and what it learns."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.fakes.reach import Reach
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.isac import ISAC
from fullrank.algorithms.likelihoods import DrawnBeforeTanh, drawn_before_tanh
from fullrank.algorithms.masac import MASAC
from fullrank.algorithms.sac import SAC, STATISTICS
from fullrank.algorithms.updates import Entries
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import Array, FloatArray
from fullrank.config import load
from fullrank.environments import AgentSpec, Continuous, Discrete, environments, make_environment
from fullrank.local import LocalRun
from fullrank.training.evaluation import Greedy, evaluate

environments.register("reach")(Reach)

BOX = Continuous((-1.0, 0.0), (1.0, 3.0))
TEAM = (
    AgentSpec(name="left", observation_size=4, action=Discrete(3)),
    AgentSpec(name="arm", observation_size=3, action=BOX),
    AgentSpec(name="right", observation_size=4, action=Discrete(3)),
)
ENVIRONMENT = EnvironmentSpec(agents=TEAM, masked=True)
LAYOUT, SEED, ITERATION, ROWS = ENVIRONMENT.layout, 5, 3, 12
SMALL: dict[str, Any] = {"batch_size": ROWS, "hidden": 7, "clip_norm": 1e9, "temperature": 0.3}
LEARNERS: dict[str, SAC] = {"masac": MASAC(**SMALL), "isac": ISAC(**SMALL, target_entropy=0.9)}


def transitions() -> FloatArray:
    """Random transitions of agents that may be dead, end, and have no use of some actions."""
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((ROWS, LAYOUT.row_size), dtype=np.float32)
    for part in (LAYOUT.available, LAYOUT.next_available):
        offered = generator.random(rows[:, part].shape) < 0.6
        rows[:, part] = offered
        rows[:, [part.start, part.stop - 3]] = 1.0  # each chooses among one action at least
    for agent in (0, 2):
        choice = generator.integers(0, 3, ROWS)
        rows[:, LAYOUT.action][:, LAYOUT.action_of(agent)] = np.eye(3)[choice]
    rows[:, LAYOUT.terminated] = generator.random((ROWS, 3)) < 0.3
    rows[:, LAYOUT.alive] = generator.random((ROWS, 3)) < 0.7
    return rows


def split(values: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    return [*torch.split(values, list(sizes))]


def perceptron(layers: list[Tensor], inputs: Tensor) -> Tensor:
    for number, layer in enumerate(layers):
        inputs = layer @ torch.cat([inputs, torch.ones(1, dtype=torch.float64)])
        inputs = inputs.relu() if number < len(layers) - 1 else inputs
    return inputs


class Plain:
    """One agent's losses, transition by transition, as the papers state them."""

    def __init__(self, learner: SAC, algorithm: Algorithm, i: int) -> None:
        self.learner, self.algorithm, self.i = learner, algorithm, i
        self.all = isinstance(learner, MASAC)
        critics = ("critic_1", "critic_2", "target_critic_1", "target_critic_2")
        self.policies = [self.layers("policy", k) for k in range(3)]
        self.critics = {role: self.layers(role, i) for role in critics}
        self.log_alpha = self.flat("temperature", i).requires_grad_()
        self.alpha = self.log_alpha.detach().exp()[0]

    def flat(self, role: str, agent: int) -> Tensor:
        (id_,) = (
            each.id
            for each in self.algorithm.problem.sections
            if each.role == role and agent in each.agents
        )
        return torch.from_numpy(self.algorithm.parameters.view(id_).astype(np.float64))

    def layers(self, role: str, agent: int) -> list[Tensor]:
        own, discrete = TEAM[agent], agent != 1
        actions = own.action.size
        inputs, outputs = own.observation_size, actions if discrete else 2 * actions
        if role != "policy":
            inputs = 11 + 8 if self.all else inputs + (0 if discrete else actions)
            outputs = actions if discrete else 1
        shapes = [(after, before + 1) for before, after in pairwise([inputs, 7, 7, outputs])]
        parts = torch.split(self.flat(role, agent), [a * b for a, b in shapes])
        return [p.view(shape).requires_grad_() for p, shape in zip(parts, shapes, strict=True)]

    def noise(self, purpose: str, agent: int) -> Array:
        """Normal numbers of a continuous action, Gumbel ones of a discrete action, (B, A)."""
        generator = stream(SEED, purpose, ITERATION, agent)
        if agent == 1:
            return generator.standard_normal((ROWS, 2), dtype=np.float32).astype(np.float64)
        uniform = generator.random((3, ROWS), dtype=np.float32).T
        return np.asarray(-np.log(-np.log(uniform.astype(np.float64))))

    def drawn(self, outputs: Tensor, noise: Array) -> tuple[Tensor, Tensor]:
        """A continuous action, and its log-density in units of half the range."""
        mean, rest = outputs[:2], outputs[2:]
        spread: Any = torch.distributions.Normal(mean, (-5 + 3.5 * (rest.tanh() + 1)).exp())
        before = mean + spread.scale * torch.from_numpy(noise)
        low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (BOX.low, BOX.high))
        action = low + (high - low) * (before.tanh() + 1) / 2
        return action, (spread.log_prob(before) - (1 - before.tanh() ** 2).log()).sum()

    def judged(self, prefix: str, seen: list[Tensor], actions: dict[int, Tensor]) -> list[Tensor]:
        own = {**actions}
        if self.i != 1:
            own[self.i] = torch.zeros(3, dtype=torch.float64)
        if self.all:
            inputs = torch.cat([*seen, *(own[k] for k in range(3))])
        else:
            inputs = torch.cat([seen[self.i], own[1]]) if self.i == 1 else seen[self.i]
        return [perceptron(self.critics[f"{prefix}critic_{c}"], inputs) for c in (1, 2)]

    def soft(
        self,
        prefix: str,
        seen: list[Tensor],
        actions: dict[int, Tensor],
        offered: Tensor,
        noise: Array,
    ) -> tuple[Tensor, Tensor]:
        """The soft value and the entropy."""
        outputs = perceptron(self.policies[self.i], seen[self.i])
        if self.i == 1:
            action, log_density = self.drawn(outputs, noise)
            values = self.judged(prefix, seen, {**actions, 1: action})
            return torch.min(*values)[0] - self.alpha * log_density, -log_density
        every = torch.log_softmax(outputs[offered], 0)
        least = torch.min(*self.judged(prefix, seen, actions))[offered]
        value = (every.exp() * (least - self.alpha * every)).sum()
        return value, -(every.exp() * every).sum()

    def computed(self, rows: FloatArray) -> tuple[list[Array], Mapping[str, float]]:
        """Gradients of each network, and statistics."""
        own, terms = self.noise("action", self.i), list[dict[str, Tensor]]()
        ahead = [self.noise("next_action", k) for k in range(3)]
        for number, row in enumerate(torch.from_numpy(rows.astype(np.float64))):
            if not row[LAYOUT.alive][self.i]:
                continue
            seen, after = (
                split(row[part], (4, 3, 4))
                for part in (LAYOUT.observation, LAYOUT.next_observation)
            )
            offered, next_offered = (
                split(row[part] > 0, (3, 2, 3))
                for part in (LAYOUT.available, LAYOUT.next_available)
            )
            action = dict(enumerate(split(row[LAYOUT.action], (3, 2, 3))))
            ended = row[LAYOUT.terminated]
            acts = (row[LAYOUT.alive] - ended).abs()
            nexts = dict[int, Tensor]()
            for k in range(3):
                outputs, noise = perceptron(self.policies[k], after[k]), ahead[k][number]
                if k == 1:
                    nexts[k] = acts[k] * self.drawn(outputs, noise)[0]
                else:
                    scores = (outputs + torch.from_numpy(noise)).masked_fill(
                        ~next_offered[k], -torch.inf
                    )
                    nexts[k] = acts[k] * torch.eye(3, dtype=torch.float64)[scores.argmax()]
            later, _ = self.soft(
                "target_", after, nexts, next_offered[self.i], ahead[self.i][number]
            )
            goal = row[LAYOUT.reward][self.i] + 0.95 * (1 - ended[self.i]) * later.detach()
            first, second = (
                (values * action[self.i]).sum() if self.i != 1 else values[0]
                for values in self.judged("", seen, action)
            )
            value, entropy = self.soft("", seen, action, offered[self.i], own[number])
            aim = -2.0 if self.i == 1 else float(offered[self.i].sum().double().log())
            aim *= 1.0 if self.i == 1 else self.learner.target_entropy
            terms.append(
                {
                    "qf1_values": first,
                    "qf2_values": second,
                    "qf1_loss": (goal - first) ** 2,
                    "qf2_loss": (goal - second) ** 2,
                    "actor_loss": -value,
                    "alpha": self.alpha,
                    "alpha_loss": self.log_alpha.exp()[0] * (entropy.detach() - aim),
                    "entropy": entropy,
                }
            )
        means = {name: torch.stack([term[name] for term in terms]).mean() for name in STATISTICS}
        learned = (
            ("qf1_loss", self.critics["critic_1"]),
            ("qf2_loss", self.critics["critic_2"]),
            ("actor_loss", self.policies[self.i]),
            ("alpha_loss", [self.log_alpha]),
        )
        gradients = [
            torch.cat([g.reshape(-1) for g in torch.autograd.grad(means[n], p, retain_graph=True)])
            for n, p in learned
        ]
        return [each.numpy() for each in gradients], {n: each.item() for n, each in means.items()}


@pytest.mark.parametrize("agent", [0, 1, 2])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_unit_is_the_gradient_of_the_papers_losses(name: str, agent: int) -> None:
    learner, rows = LEARNERS[name], transitions()
    algorithm, generator = learner.make(ENVIRONMENT, seed=SEED, device="cpu"), np.random.default_rng
    for section in algorithm.problem.sections:
        view = algorithm.parameters.view(section.id)
        view += generator(section.id).normal(scale=0.3, size=view.shape).astype(np.float32)
    ((_, update),) = algorithm.gradients.compute(rows, [agent], iteration=ITERATION)
    gradients, statistics = Plain(learner, algorithm, agent).computed(rows)
    entries = Entries(STATISTICS)
    found = np.split(update[: -entries.size], np.cumsum([len(each) for each in gradients])[:-1])
    for own, expected in zip(found, gradients, strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert entries.sums(update[-entries.size :]) == pytest.approx(statistics, rel=1e-5)


def test_an_actor_draws_from_the_distribution_of_the_losses() -> None:
    outputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    head = DrawnBeforeTanh(BOX, device=torch.device("cpu"))
    played = head.explore(outputs.t()[None], np.random.default_rng(2))[0].t()
    noise = np.random.default_rng(2).standard_normal((1, 2, 64), dtype=np.float32)[0].T
    action, _ = drawn_before_tanh(outputs, torch.from_numpy(noise), BOX)
    torch.testing.assert_close(played, action)


def test_entries_of_one_value_have_no_part_in_entropies() -> None:
    whole, narrow = Continuous((-1.0, 0.5), (1.0, 0.5)), Continuous((-1.0,), (1.0,))
    outputs, noise = torch.tensor([[0.3, 9.0, 0.1, -5.0]]), torch.tensor([[0.4, 2.0]])
    action, density = drawn_before_tanh(outputs, noise, whole)
    alone, expected = drawn_before_tanh(outputs[:, ::2], noise[:, :1], narrow)
    torch.testing.assert_close(action, torch.cat([alone, torch.tensor([[0.5]])], 1))
    torch.testing.assert_close(density, expected)
    learner = LEARNERS["isac"]
    assert learner.aim(whole, None) == learner.aim(narrow, None) == -1.0


def test_an_action_that_is_not_available_has_no_part_in_a_soft_value() -> None:
    learner, rows = LEARNERS["isac"], transitions()
    rows[:, LAYOUT.available][:, 1] = 0.0
    algorithm = learner.make(ENVIRONMENT, seed=SEED, device="cpu")
    ((_, before),) = algorithm.gradients.compute(rows, [0], iteration=0)
    (policy,) = (s for s in algorithm.problem.sections if (s.role, s.agents) == ("policy", (0,)))
    last = algorithm.parameters.view(policy.id)[-3 * 8 :].reshape(3, 8)
    last[1] += 1.0
    ((_, after),) = algorithm.gradients.compute(rows, [0], iteration=0)
    critics = 2 * algorithm.problem.sections[0].size
    gradient = after[critics : critics + policy.size]
    assert not gradient[-3 * 8 :].reshape(3, 8)[1].any()
    np.testing.assert_array_equal(
        gradient[: -3 * 8], before[critics : critics + policy.size][: -3 * 8]
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"micro_batches": 13}, "micro_batches = 13 must lie between 1 and"),
        ({"temperature": 0.0}, "temperature must be above 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(LEARNERS["isac"], **settings)


def test_settings_of_other_explorations_are_unknown() -> None:
    with pytest.raises(ConfigError, match="'masac' has no parameter 'exploration_noise'"):
        load(options={"algorithm.name": "masac", "algorithm.exploration_noise": 0.2}).check()


def trained(name: str, environment: str, **options: Any) -> tuple[LocalRun, float]:
    """A run of some seconds, and the mean return of its greedy play."""
    settings: dict[str, Any] = {
        "iterations": 200,
        "environment.name": environment,
        "environment.agents": 0,
        "environment.copies": 8,
        "collect.steps": 4,
        "collect.warmup": 200,
        "collect.warmup_copies": 4,
        "algorithm.name": name,
        "algorithm.batch_size": 64,
        "algorithm.hidden": 32,
        "algorithm.learning_rate": 0.01,
    }
    learned = LocalRun(load(options=settings | options).check().config, coded=False)
    learned.train()
    played = make_environment(environment, agents=0, copies=4)
    actor = Greedy(learned.training.algorithm.actor)
    return learned, float(evaluate(played, actor, 20, seed=1).returns.mean())


@pytest.mark.integration
@pytest.mark.parametrize("name", ["masac", "isac"])
def test_the_two_step_game_is_learned(name: str) -> None:
    """Random play earns 4.1 on average; the choice that needs no partner earns 7."""
    _, earned = trained(name, "two_step_game", **{"algorithm.target_entropy": 0.2})
    assert earned >= 7.0


@pytest.mark.integration
@pytest.mark.parametrize("name", ["masac", "isac"])
def test_two_arms_learn_to_reach_and_are_exported(name: str) -> None:
    """Standing in the middle of the range loses 4 / 3 a step and arm: 10.7 an episode."""
    learned, earned = trained(name, "reach")
    assert earned > -3.0
    actor, seen = learned.training.algorithm.actor, np.array([[0.5, 2.0]], np.float32)
    (action,), _ = actor.act_greedily(seen, ())
    for arm in range(2):
        layers = actor.policy(arm)
        assert isinstance(layers, tuple)
        hidden = seen[0, arm : arm + 1]
        for number, layer in enumerate(layers):
            hidden = layer @ np.append(hidden, np.float32(1.0))
            hidden = np.maximum(hidden, 0.0) if number < len(layers) - 1 else hidden
        np.testing.assert_allclose(1.0 + 2.0 * np.tanh(hidden), action[arm : arm + 1], rtol=1e-5)
