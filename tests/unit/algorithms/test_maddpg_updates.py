"""MADDPG, DDPG and MFAC against the equations, one agent at a time, in float64 with autograd."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.mfac import MFAC
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments import AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.replay.layout import Layout

Net = list[tuple[Tensor, Tensor]]


def layout_of(specs: Sequence[AgentSpec]) -> Layout:
    return Layout(
        observation_sizes=tuple(spec.observation_size for spec in specs),
        action_sizes=tuple(spec.action.size for spec in specs),
    )


def random_batch(specs: Sequence[AgentSpec], size: int, *, seed: int = 0) -> FloatArray:
    """Transitions with deaths: some agents did not act, some terminated, some come back."""
    generator = np.random.default_rng(seed)
    layout = layout_of(specs)
    batch = generator.standard_normal((size, layout.row_size), dtype=np.float32)
    batch[:, layout.terminated] = generator.random((size, len(specs))) < 0.2
    batch[:, layout.alive] = generator.random((size, len(specs))) < 0.8
    return batch


class Reference:
    """Reads the parameters out of an algorithm's sections and computes u_i from the equations."""

    def __init__(
        self, algorithm: Algorithm, config: MADDPG, specs: Sequence[AgentSpec], *, seed: int
    ) -> None:
        self.config, self.specs, self.seed = config, specs, seed
        self.layout = layout_of(specs)
        self.nets = {
            (section.role, section.agents[0]): self._net(
                section.role, section.agents[0], algorithm.parameters.view(section.id)
            )
            for section in algorithm.problem.sections
        }

    def _net(self, role: str, unit: UnitIndex, flat: FloatArray) -> Net:
        hidden = self.config.hidden
        own, actions = self.layout.observation_sizes[unit], self.layout.action_sizes[unit]
        joint = (self.layout.observation_sizes, self.layout.action_sizes)
        seen = self.critic_input(unit, *(torch.zeros(1, sum(part)) for part in joint)).shape[1]
        sizes = (seen, hidden, hidden, 1) if "critic" in role else (own, hidden, hidden, actions)
        values = torch.tensor(flat, dtype=torch.float64)
        net, start = [], 0
        for inputs, outputs in pairwise(sizes):
            end = start + outputs * (inputs + 1)
            matrix = values[start:end].view(outputs, inputs + 1)
            net.append((matrix[:, :-1].clone(), matrix[:, -1].clone()))
            start = end
        assert start == len(values)
        return net

    def critic_input(self, unit: UnitIndex, state: Tensor, actions: Tensor) -> Tensor:
        own = actions[:, self.layout.action_of(unit)]
        if self.specs[unit].side in self.config.ddpg_sides:
            return torch.cat([state[:, self.layout.observation_of(unit)], own], 1)
        if not isinstance(self.config, MFAC):
            return torch.cat([state, actions], 1)
        mean = state.new_zeros(len(state), max(self.layout.action_sizes))
        for other, size in enumerate(self.layout.action_sizes):
            if other != unit:
                mean[:, :size] += actions[:, self.layout.action_of(other)] / (len(self.specs) - 1)
        return torch.cat([state, own, mean], 1)

    def update(
        self, batch: FloatArray, unit: UnitIndex, *, iteration: int, clip: bool = True
    ) -> np.ndarray:
        rows = torch.tensor(batch, dtype=torch.float64)
        layout, config = self.layout, self.config
        alive, terminated = rows[:, layout.alive], rows[:, layout.terminated]
        state, actions = rows[:, layout.observation], rows[:, layout.action]
        next_state = rows[:, layout.next_observation]
        next_actions = torch.cat(
            [
                self.action("target_policy", "target_action", k, next_state, iteration)[0]
                * (alive - terminated).abs()[:, k : k + 1]
                for k in range(len(self.specs))
            ],
            dim=1,
        )
        following = self.critic_input(unit, next_state, next_actions)
        value = evaluate(self.nets["target_critic", unit], following)
        going_on = 1 - terminated[:, unit]
        expected = rows[:, layout.reward][:, unit] + config.discount * going_on * value[:, 0]

        critic, policy = self.nets["critic", unit], self.nets["policy", unit]
        for net in (critic, policy):
            for variable in (v for layer in net for v in layer):
                variable.requires_grad_(True)
        counted = alive[:, unit] / max(1.0, float(alive[:, unit].sum()))
        taken = evaluate(critic, self.critic_input(unit, state, actions))[:, 0]
        critic_loss = (counted * (expected - taken) ** 2).sum()
        own, outputs = self.action("policy", "policy_action", unit, state, iteration)
        replaced = actions.clone()
        replaced[:, layout.action_of(unit)] = own
        policy_loss = (
            -(counted * evaluate(critic, self.critic_input(unit, state, replaced))[:, 0]).sum()
            + config.logit_penalty * (counted * outputs.square().mean(1)).sum()
        )
        parts = []
        for net, loss in ((critic, critic_loss), (policy, policy_loss)):
            variables = [variable for layer in net for variable in layer]
            gradients = list(torch.autograd.grad(loss, variables))
            if clip:
                gradients = [g * min(1.0, config.clip_norm / float(g.norm())) for g in gradients]
            for weight, bias in zip(gradients[::2], gradients[1::2], strict=True):
                parts.append(torch.cat([weight, bias.unsqueeze(1)], 1).flatten())
        return torch.cat(parts).numpy()

    def action(
        self, role: str, purpose: str, unit: UnitIndex, state: Tensor, iteration: int
    ) -> tuple[Tensor, Tensor]:
        outputs = evaluate(self.nets[role, unit], state[:, self.layout.observation_of(unit)])
        spec = self.specs[unit].action
        if isinstance(spec, Continuous):
            low, high = torch.tensor(spec.low), torch.tensor(spec.high)
            return low + (high - low) * (outputs.tanh() + 1) / 2, outputs
        generator = stream(self.seed, purpose, iteration, unit)
        drawn = generator.random((spec.size, len(state)), dtype=np.float32)
        uniform = torch.tensor(np.maximum(drawn, np.float32(2.0**-25)), dtype=torch.float64)
        noisy = torch.split(outputs - torch.log(-torch.log(uniform)).T, list(spec.choices), 1)
        return torch.cat([torch.softmax(part, dim=1) for part in noisy], 1), outputs


def evaluate(net: Net, inputs: Tensor) -> Tensor:
    for weight, bias in net[:-1]:
        inputs = torch.relu(inputs @ weight.T + bias)
    weight, bias = net[-1]
    return inputs @ weight.T + bias


DISCRETE = tuple(
    AgentSpec(name=f"agent_{index}", observation_size=18, action=Discrete(5, relaxed=True))
    for index in range(3)
)
MIXED = (
    AgentSpec(name="a", observation_size=7, action=Discrete(5, relaxed=True), side="red"),
    AgentSpec(
        name="b", observation_size=11, action=Continuous((-1.0, 0.0), (1.0, 3.0)), side="red"
    ),
    AgentSpec(name="c", observation_size=7, action=Discrete(5, relaxed=True)),
    AgentSpec(name="d", observation_size=4, action=Discrete(3)),
)


CHOOSING = (
    AgentSpec(name="a", observation_size=6, action=MultiDiscrete((2, 3))),
    AgentSpec(name="b", observation_size=6, action=Discrete(5)),
    AgentSpec(name="c", observation_size=6, action=MultiDiscrete((2, 3))),
)
"""Actions of five entries each, which are not all of one kind."""


def updates_of(
    config: MADDPG, specs: Sequence[AgentSpec], batch: FloatArray, *, iteration: int
) -> tuple[dict[UnitIndex, FloatArray], Reference]:
    """Gradients without statistics, and their reference."""
    algorithm = config.make(EnvironmentSpec(agents=tuple(specs)), seed=3, device="cpu")
    updates = {
        unit: update[: -algorithm.problem.statistics]
        for unit, update in algorithm.gradients.compute(
            batch, range(len(specs)), iteration=iteration
        )
    }
    return updates, Reference(algorithm, config, specs, seed=3)


@pytest.mark.parametrize(
    ("specs", "ddpg_sides"),
    [(DISCRETE, ()), (MIXED, ()), (CHOOSING, ()), (MIXED, ("red",)), (MIXED, ("red", "team"))],
    ids=["equal", "mixed", "several choices", "one side by DDPG", "all by DDPG"],
)
@pytest.mark.parametrize("kind", [MADDPG, MFAC])
@pytest.mark.parametrize(("batch", "hidden"), [(64, 16), (333, 50), (17, 33)])
def test_updates_are_the_gradients_of_both_losses(
    kind: type[MADDPG],
    specs: tuple[AgentSpec, ...],
    ddpg_sides: tuple[str, ...],
    batch: int,
    hidden: int,
) -> None:
    config = kind(batch_size=batch, hidden=hidden, ddpg_sides=ddpg_sides)
    rows = random_batch(specs, batch)
    updates, reference = updates_of(config, specs, rows, iteration=7)
    for unit, update in updates.items():
        expected = reference.update(rows, unit, iteration=7)
        np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-6)


def test_each_variable_is_clipped_by_itself() -> None:
    config = MADDPG(batch_size=64, hidden=16, clip_norm=0.05)
    rows = random_batch(MIXED, 64)
    updates, reference = updates_of(config, MIXED, rows, iteration=0)
    for unit, update in updates.items():
        raw = reference.update(rows, unit, iteration=0, clip=False)
        clipped = reference.update(rows, unit, iteration=0)
        np.testing.assert_allclose(update, clipped, rtol=1e-4, atol=1e-6)
        kept = np.isclose(raw, clipped, rtol=1e-9, atol=0)
        assert not kept.all()


def test_an_agent_that_never_acted_has_a_zero_update() -> None:
    config = MADDPG(batch_size=64, hidden=16)
    rows = random_batch(MIXED, 64)
    rows[:, layout_of(MIXED).alive][:, 2] = 0.0
    updates, _ = updates_of(config, MIXED, rows, iteration=0)
    assert not updates[2].any()
    assert updates[0].any()


def test_transitions_in_which_the_agent_did_not_act_do_not_count() -> None:
    config = MADDPG(batch_size=64, hidden=16)
    layout = layout_of(MIXED)
    rows = random_batch(MIXED, 64)
    changed = rows.copy()
    dead = rows[:, layout.alive][:, 0] == 0
    changed[:, layout.reward][dead, 0] = 1e3
    assert dead.any()
    before, _ = updates_of(config, MIXED, rows, iteration=0)
    after, _ = updates_of(config, MIXED, changed, iteration=0)
    assert np.array_equal(before[0], after[0])
    assert not np.array_equal(rows, changed)


@pytest.mark.parametrize("specs", [DISCRETE, MIXED], ids=["equal", "mixed"])
def test_one_iteration_equals_torch_adam_and_polyak_averaging(specs: tuple[AgentSpec, ...]) -> None:
    config = MADDPG(batch_size=64, hidden=16, learning_rate=0.01)
    algorithm = config.make(EnvironmentSpec(agents=tuple(specs)), seed=3, device="cpu")
    parameters, targets, optimisers = {}, {}, {}
    for unit in range(len(algorithm.problem.units)):
        online = [
            section.id
            for role in ("critic", "policy")
            for section in algorithm.problem.sections
            if (section.role, section.agents) == (role, (unit,))
        ]
        parameters[unit] = torch.nn.Parameter(
            torch.cat([torch.from_numpy(algorithm.parameters.view(id_).copy()) for id_ in online])
        )
        targets[unit] = parameters[unit].detach().clone()
        optimisers[unit] = torch.optim.Adam([parameters[unit]], lr=0.01, fused=True)
    for iteration in range(3):
        rows = random_batch(specs, 64, seed=iteration)
        decoded = np.zeros(
            (len(algorithm.problem.units), algorithm.problem.vector_size), np.float32
        )
        for unit, update in algorithm.gradients.compute(
            rows, range(len(algorithm.problem.units)), iteration=iteration
        ):
            decoded[unit, : len(update)] = update
            gradient = update[: -algorithm.problem.statistics]
            parameters[unit].grad = torch.from_numpy(gradient.copy())
            optimisers[unit].step()
            targets[unit].lerp_(parameters[unit].detach(), 0.01)
        algorithm.optimiser.step(decoded)
    for section in algorithm.problem.sections:
        expected = (targets if section.role.startswith("target") else parameters)[section.agents[0]]
        critic = next(
            s.size
            for s in algorithm.problem.sections
            if (s.role, s.agents) == ("critic", section.agents)
        )
        part = slice(None, critic) if section.role.endswith("critic") else slice(critic, None)
        assert np.array_equal(
            algorithm.parameters.view(section.id), expected.detach()[part].numpy()
        )
