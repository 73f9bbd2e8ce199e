"""Hand-written kernels and general modules compute the losses that algorithms state."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fullrank.algorithms import EnvironmentSpec, Gradients
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.darl1n import DARL1N
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.maddpg import MADDPG, mean_square
from fullrank.algorithms.mfac import MFAC
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Entries
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete, make_environment
from fullrank.environments.neighbourhood import make_neighbourhood

ZEROS = (2, 5, 6)
AGENTS = (
    AgentSpec(
        name="scout", observation_size=7, action=Discrete(5, relaxed=True), always_zero=ZEROS
    ),
    AgentSpec(name="gripper", observation_size=13, action=Continuous((-1.0, 0.0), (1.0, 3.0))),
    AgentSpec(name="guard", observation_size=7, action=Discrete(3), side="lone"),
    AgentSpec(
        name="scout_2",
        observation_size=7,
        action=Discrete(5, relaxed=True),
        side="lone",
        always_zero=ZEROS,
    ),
)
SEED = 11


def minibatch(size: int) -> FloatArray:
    """Transitions in which agents die or are dead."""
    layout, generator = layout_of(AGENTS), np.random.default_rng(0)
    rows = generator.standard_normal((size, layout.row_size), dtype=np.float32)
    rows[:, layout.terminated] = generator.random((size, layout.agents)) < 0.2
    rows[:, layout.alive] = generator.random((size, layout.agents)) < 0.8
    return rows


def readable(config: ActorCritic, environment: EnvironmentSpec) -> Gradients:
    """The losses by autograd, at the parameters that the hand-written kernel starts from."""
    fused = config.make(replace(environment, masked=False), seed=SEED, device="cpu")
    stated = ActorCritic.make(config, environment, seed=SEED, device="cpu")
    for section in stated.problem.sections:
        stated.parameters.view(section.id)[:] = fused.parameters.view(section.id)
    stated.parameters.written()
    return stated.gradients


def assert_alike(
    config: ActorCritic, update: FloatArray, expected: FloatArray, *, rtol: float
) -> None:
    """Compare gradients to their largest entry, and statistics by name."""
    entries = Entries(config.statistics())
    end = len(update) - entries.size
    scale = np.abs(expected[:end]).max()
    assert scale > 1e-4
    np.testing.assert_allclose(update[:end], expected[:end], rtol=0, atol=rtol * scale)
    stated = entries.sums(expected[end:])
    assert all(stated.values())
    assert entries.sums(update[end:]) == pytest.approx(stated, rel=rtol)


@pytest.mark.parametrize("clip_norm", [0.5, 1e3])
@pytest.mark.parametrize("kind", [MADDPG, MFAC])
def test_the_fused_kernel_computes_the_losses_that_the_algorithm_states(
    kind: type[MADDPG], clip_norm: float
) -> None:
    config = kind(batch_size=100, hidden=33, ddpg_sides=("lone",), clip_norm=clip_norm)
    environment, rows = EnvironmentSpec(agents=AGENTS), minibatch(100)
    fused = dict(
        config.make(environment, seed=SEED, device="cpu").gradients.compute(
            rows, range(4), iteration=3
        )
    )
    stated = dict(readable(config, environment).compute(rows, range(4), iteration=3))
    for agent in range(4):
        assert_alike(config, fused[agent], stated[agent], rtol=2e-5)


@pytest.mark.parametrize("kind", [MADDPG, MFAC])
def test_leaving_out_entries_that_are_always_zero_changes_no_update(kind: type[MADDPG]) -> None:
    config = kind(batch_size=100, hidden=33, ddpg_sides=("lone",))
    declared, rows = layout_of(AGENTS), minibatch(100)
    undeclared = tuple(replace(agent, always_zero=()) for agent in AGENTS)
    whole = np.zeros((100, layout_of(undeclared).row_size), np.float32)
    for part in ("observation", "next_observation"):
        stored = rows[:, getattr(declared, part)]
        whole[:, getattr(layout_of(undeclared), part)] = declared.whole(stored)
    for part in ("action", "reward", "terminated", "alive"):
        whole[:, getattr(layout_of(undeclared), part)] = rows[:, getattr(declared, part)]
    updates = [
        dict(
            config.make(EnvironmentSpec(agents=agents), seed=SEED, device="cpu").gradients.compute(
                batch, range(4), iteration=3
            )
        )
        for agents, batch in ((AGENTS, rows), (undeclared, whole))
    ]
    for agent in range(4):
        left_out, multiplied = (
            own[agent][: -config.problem(EnvironmentSpec(agents=AGENTS)).statistics]
            for own in updates
        )
        np.testing.assert_allclose(left_out, multiplied, rtol=0, atol=1e-6)
        assert not left_out[multiplied == 0].any()


@pytest.mark.parametrize("samples", ["resets", "episodes"])
@pytest.mark.parametrize("data", ["keyed", "independent"])
def test_the_fused_kernel_of_darl1n_computes_its_losses(samples: str, data: str) -> None:
    config = DARL1N(batch_size=40, hidden=20, samples=samples, data=data)  # type: ignore[arg-type]
    agents = make_environment("food_collection", agents=4, copies=1).agents
    environment = EnvironmentSpec(
        agents=tuple(agents), neighbourhoods=lambda: make_neighbourhood("food_collection", agents=4)
    )
    nothing = np.empty((0, layout_of(agents).row_size), np.float32)
    fused = config.make(environment, seed=SEED, device="cpu").gradients
    stated = config.readable(environment, seed=SEED, device="cpu").gradients
    for row in (0, 1):
        kernel = dict(fused.compute(nothing, range(4), iteration=3, row=row))
        losses = dict(stated.compute(nothing, range(4), iteration=3, row=row))
        for agent in range(4):
            assert_alike(config, kernel[agent], losses[agent], rtol=5e-5)


def overriding(base: type[ActorCritic], **members: Any) -> Any:
    """A class of one's own that overrides some members of a base."""
    made = type("Mine", (base,), members)
    return dataclass(frozen=True, slots=True, kw_only=True)(made)


class CalledError(Exception):
    """An overridden method was called."""


def called(*_: Any, **__: Any) -> Any:
    raise CalledError


FORAGERS = tuple(make_environment("food_collection", agents=3, copies=1).agents)
FORAGING = EnvironmentSpec(
    agents=FORAGERS, neighbourhoods=lambda: make_neighbourhood("food_collection", agents=3)
)
"""Agents for any of the algorithms with hand-written passes."""


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        (MADDPG, "networks"),
        (MADDPG, "critic_view"),
        (MADDPG, "critic_inputs"),
        (MADDPG, "modelled"),
        (MADDPG, "head"),
        (MADDPG, "losses"),
        (MFAC, "networks"),
        (MFAC, "critic_view"),
        (MFAC, "head"),
        (DARL1N, "networks"),
        (DARL1N, "head"),
        (DARL1N, "losses"),
        (DARL1N, "sampler"),
    ],
)
def test_what_a_subclass_overrides_is_called(kind: type[ActorCritic], member: str) -> None:
    learner = overriding(kind, **{member: called})(batch_size=6, hidden=4)

    def learn() -> None:
        algorithm = learner.make(FORAGING, seed=SEED, device="cpu")
        rows = np.zeros((6, FORAGING.layout.row_size), np.float32)
        list(algorithm.gradients.compute(rows, [0], iteration=0))

    with pytest.raises(CalledError):
        learn()


@pytest.mark.parametrize("kind", [MADDPG, MFAC, DARL1N])
def test_a_subclass_plays_collects_and_learns_by_its_own_networks(kind: type[ActorCritic]) -> None:
    class Loud(nn.Module):
        """Prefers one action, whatever is observed, and tells that it was asked."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.preference = nn.Parameter(10.0 * torch.arange(outputs, dtype=torch.float32))
            self.scale = nn.Parameter(torch.zeros(inputs))

        def forward(self, seen: Tensor) -> Tensor:
            asked.append(len(seen))
            return self.preference + (seen * self.scale).sum(1, keepdim=True)

    def networks(self: Any, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        own = environment.agents[agent]
        return {
            **kind.networks(self, environment, agent),
            "policy": Loud(own.observation_size, own.action.size),
        }

    asked = list[int]()
    learner = overriding(kind, networks=networks)(batch_size=6, hidden=4)
    algorithm = learner.make(FORAGING, seed=SEED, device="cpu")
    assert algorithm.problem.sections == learner.problem(FORAGING).sections
    observed = sum(agent.observation_size for agent in FORAGERS)
    greedy, _ = algorithm.actor.act_greedily(np.ones((2, observed), np.float32), ())
    choices = np.split(greedy, len(FORAGERS), axis=1)
    assert all((own.argmax(1) == own.shape[1] - 1).all() for own in choices)
    assert asked == [2] * len(FORAGERS)
    rows = np.zeros((6, FORAGING.layout.row_size), np.float32)
    list(algorithm.gradients.compute(rows, [0], iteration=0))
    assert len(asked) >= len(FORAGERS) + 4, "it learns, and plays or computes targets, otherwise"


def test_decoded_gradients_of_a_subclass_are_clipped_by_its_own_variables() -> None:
    def networks(self: Any, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        own = DARL1N.networks(self, environment, agent)
        return {**own, "policy": nn.Linear(environment.agents[agent].observation_size, 5)}

    learner = overriding(DARL1N, networks=networks)(
        batch_size=6, hidden=4, data="independent", clip_norm=1e-3
    )
    algorithm = learner.make(FORAGING, seed=SEED, device="cpu")
    before = algorithm.parameters.view(0).copy()
    targets = np.ones((len(FORAGERS), algorithm.problem.vector_size), np.float32)
    statistics = algorithm.optimiser.step(targets)
    assert statistics["grad_norm/0"] > 1.0
    assert (algorithm.parameters.view(0) != before).all()


CHOOSING = tuple(agent for agent in AGENTS if isinstance(agent.action, Discrete))
MASKED = EnvironmentSpec(agents=CHOOSING, masked=True)


def masked_minibatch(size: int, *, share: float) -> FloatArray:
    """Transitions in which an action is available with probability ``share``."""
    layout, generator = MASKED.layout, np.random.default_rng(0)
    rows = generator.standard_normal((size, layout.row_size), dtype=np.float32)
    rows[:, layout.terminated] = generator.random((size, layout.agents)) < 0.2
    rows[:, layout.alive] = generator.random((size, layout.agents)) < 0.8
    for part in (layout.available, layout.next_available):
        rows[:, part] = generator.random(rows[:, part].shape) < share
    return rows


def test_an_unavailable_action_has_no_probability_and_its_logit_no_gradient() -> None:
    batch = Transitions(
        masked_minibatch(50, share=0.4), CHOOSING, masked=True, device=torch.device("cpu")
    )
    draws = Draws(CHOOSING, seed=SEED, key=(0,), device=torch.device("cpu"))
    for agent, spec in enumerate(CHOOSING):
        available = batch.available[agent]
        assert available is not None
        assert available.any(1).all()
        logits = torch.randn(50, spec.action.size, requires_grad=True)
        action = draws.action("policy_action", agent, logits, available)
        loss = (action * torch.randn(50, spec.action.size)).sum()
        loss = loss + mean_square(logits, available).sum()
        (gradient,) = torch.autograd.grad(loss, [logits])
        assert not action[~available].any()
        assert not gradient[~available].any()
        torch.testing.assert_close(action.sum(1), torch.ones(50))
        assert gradient[available].all()


@pytest.mark.parametrize("kind", [MADDPG, MFAC])
def test_updates_with_every_action_available_are_those_without_masks(kind: type[MADDPG]) -> None:
    config, plain = kind(batch_size=60, hidden=20), EnvironmentSpec(agents=CHOOSING)
    rows = masked_minibatch(60, share=1.0)
    stated = readable(config, plain)
    updates = dict(stated.compute(rows[:, : plain.layout.row_size], range(3), iteration=3))
    for agent, update in readable(config, MASKED).compute(rows, range(3), iteration=3):
        assert_alike(config, update, updates[agent], rtol=1e-6)


@pytest.mark.parametrize("kind", [MADDPG, MFAC])
def test_updates_ignore_what_target_policies_say_of_unavailable_actions(
    kind: type[MADDPG],
) -> None:
    """Biases of unavailable actions are raised by 9 in all policies."""
    config = kind(batch_size=40, hidden=20)
    rows = masked_minibatch(40, share=1.0)
    layout, forbidden = MASKED.layout, [4, 7, 12]
    for part in (layout.available, layout.next_available):
        rows[:, [part.start + entry for entry in forbidden]] = 0.0
    updates = []
    for raised in (0.0, 9.0):
        algorithm = config.make(MASKED, seed=SEED, device="cpu")
        for section in algorithm.problem.sections:
            if section.role.endswith("policy"):
                algorithm.parameters.view(section.id)[-1] += raised
        algorithm.parameters.written()
        updates.append(dict(algorithm.gradients.compute(rows, range(3), iteration=3)))
    for agent in range(3):
        np.testing.assert_array_equal(updates[0][agent], updates[1][agent])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed(ActorCritic):
    """Critic and mixer learn from one temporal difference, so that their losses share a graph."""

    apart: bool = False

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        own = environment.agents[agent]
        sizes = {"critic": own.observation_size, "mixer": 1, "policy": own.observation_size}
        return {role: nn.Linear(size, 1) for role, size in sizes.items()}

    def losses(
        self, agent: int, nets: Networks, batch: Transitions, draws: Draws
    ) -> Mapping[str, Tensor]:
        def difference() -> Tensor:
            value = nets.mixer[agent](nets.critic[agent](batch.observation[agent]))[:, 0]
            return torch.dot(batch.weight[agent], (batch.reward[agent] - value).square())

        shared = difference()
        return {"critic": shared, "mixer": difference() if self.apart else shared}


def test_losses_that_share_a_graph_have_the_bits_of_losses_that_do_not() -> None:
    environment, rows = EnvironmentSpec(agents=AGENTS), minibatch(30)
    shared, apart = (
        dict(
            Mixed(apart=each)
            .make(environment, seed=SEED, device="cpu")
            .gradients.compute(rows, range(4), iteration=0)
        )
        for each in (False, True)
    )
    for agent, update in shared.items():
        assert update.any()
        np.testing.assert_array_equal(update, apart[agent])
