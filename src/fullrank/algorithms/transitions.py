"""What losses of actor-critics read: a minibatch of transitions by agent, and random numbers."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.base import layout_of
from fullrank.algorithms.groups import Groups
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Continuous, MultiDiscrete
from fullrank.networks.fused.cuda import sent
from fullrank.networks.heads import action_noise, keys_of, make_head


class Transitions:
    """B joint transitions; every sequence is indexed by the agent.

    Args:
        rows: Packed transitions, shape (B, row_size) float32.
        agents: Specifications of all agents.
        masked: True if the rows hold the masks of available actions.
        groups: Agents that share networks; all others are groups of their own.
        device: Device of the tensors.
        weight: Weight of a transition in which an agent acted; None: 1 / their number, in a group
            1 / their mean number.

    Attributes:
        agents: Specifications of all agents.
        observation: Observation of each agent, shape (B, observation size).
        action: Action of each agent, shape (B, action size); zero where it did not act.
        next_observation: Like ``observation``, after the step.
        available: Mask of the actions that each agent could choose, shape (B, action size); None
            where the environment offers no masks.
        next_available: Like ``available``, after the step.
        reward: Reward of each agent, shape (B,).
        continues: 0 where the agent reached a terminal state, else 1, shape (B,).
        acts_next: 1 where the agent acted and continues, or comes back, else 0, shape (B,).
        weight: Weight of each transition, 0 where the agent did not act, shape (B,). A mean over
            transitions is the sum of weighted terms, or its mean over the agents of a group.
    """

    def __init__(
        self,
        rows: FloatArray,
        agents: Sequence[AgentSpec],
        *,
        masked: bool = False,
        groups: Groups = (),
        device: torch.device,
        weight: float | None = None,
    ) -> None:
        self.agents, layout = agents, layout_of(agents, masked=masked)
        rows = np.require(rows, requirements="W")
        batch = torch.from_numpy(rows).to(device)
        observed, acting = list(layout.observation_sizes), list(layout.action_sizes)
        self.observation, self.next_observation = (
            torch.split(torch.from_numpy(layout.whole(rows[:, part])).to(device), observed, 1)
            for part in (layout.observation, layout.next_observation)
        )
        self.action = torch.split(batch[:, layout.action], acting, 1)
        self.available: Sequence[Tensor | None] = (None,) * len(agents)
        self.next_available: Sequence[Tensor | None] = self.available
        if masked:
            self.available, self.next_available = (
                tuple(map(_choices, torch.split(batch[:, part], acting, 1)))
                for part in (layout.available, layout.next_available)
            )
        acted, terminated = batch[:, layout.alive], batch[:, layout.terminated]
        self.reward = batch[:, layout.reward].unbind(1)
        self.continues = (1.0 - terminated).unbind(1)
        self.acts_next = (acted - terminated).abs().unbind(1)
        sizes, counts = acted.new_ones(len(agents)), acted.sum(0)
        for own in map(list, groups):
            sizes[own], counts[own] = len(own), counts[own].sum()
        shares = acted * sizes / counts.clamp_min(1.0)
        self.weight = (shares if weight is None else acted * weight).unbind(1)


def _choices(mask: Tensor) -> Tensor:
    """Return the mask as booleans; an agent without an available action may choose any."""
    available = mask > 0
    return available | ~available.any(1, keepdim=True)


class Draws:
    """Random numbers keyed by (seed, purpose, iteration, agent).

    All holders of a unit draw the same ones; the noise of discrete actions is made on its device.

    Args:
        agents: Specifications of all agents.
        seed: The run's seed.
        key: Iteration, followed by the row of C if every holder makes its own draws.
        device: Device of the returned tensors.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], *, seed: int, key: tuple[int, ...], device: torch.device
    ) -> None:
        self._agents, self._seed, self._key, self._device = agents, seed, key, device

    @property
    def iteration(self) -> int:
        """Return the iteration of the update."""
        return self._key[0]

    def action(
        self, purpose: str, agent: int, outputs: Tensor, available: Tensor | None = None
    ) -> Tensor:
        """Draw a differentiable sample of an agent's action, shape (B, action size).

        Discrete actions are relaxed by Gumbel-softmax at temperature 1 (Jang, Gu, Poole, ICLR
        2017), each of several choices by its own; continuous ones are the mean, mapped by tanh
        into their range.

        Args:
            purpose: Purpose of the draw, for example ``target_action``.
            agent: Index of the agent.
            outputs: Outputs of its policy, shape (B, action size): logits, or means before tanh.
            available: Mask of the discrete actions that it may choose, of the same shape; the
                others get probability 0, and their logits gradient 0. None: all are available.
        """
        spec = self._agents[agent].action
        if isinstance(spec, Continuous):
            low, high = (
                torch.tensor(bound, device=self._device) for bound in (spec.low, spec.high)
            )
            return (high + low) / 2 + (high - low) / 2 * outputs.tanh()
        head = make_head(spec, noise=0.0, device=self._device)
        keys = sent(keys_of(self._seed, purpose, *self._key, last=[agent]), self._device)
        (noise,) = action_noise(head, keys, (outputs.shape[1], len(outputs)), width=len(outputs))
        if available is not None:
            outputs = outputs.masked_fill(~available, -torch.inf)
        outputs = outputs + noise.t()
        if isinstance(spec, MultiDiscrete):
            parts = torch.split(outputs, list(spec.choices), 1)
            return torch.cat([torch.softmax(part, dim=1) for part in parts], 1)
        return torch.softmax(outputs, dim=1)

    def normal(self, purpose: str, agent: int, shape: Sequence[int]) -> Tensor:
        """Draw standard normal numbers of the given shape."""
        generator = stream(self._seed, purpose, *self._key, agent)
        drawn = generator.standard_normal(tuple(shape), dtype="float32")
        return torch.from_numpy(drawn).to(self._device)
