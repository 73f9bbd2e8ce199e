"""A minibatch of transitions, split by agent for the losses."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.base import layout_of
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec


class Transitions:
    """B joint transitions; every sequence is indexed by the agent.

    Args:
        rows: Packed transitions, shape (B, row_size) float32.
        agents: Specifications of all agents.
        masked: True if the rows hold the masks of available actions.
        device: Device of the tensors.
        weight: Weight of a transition in which an agent acted; None: 1 / their number.

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
            transitions is the sum of weighted terms.
    """

    def __init__(
        self,
        rows: FloatArray,
        agents: Sequence[AgentSpec],
        *,
        masked: bool = False,
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
        weights = acted / acted.sum(0).clamp_min(1.0) if weight is None else acted * weight
        self.weight = weights.unbind(1)


def _choices(mask: Tensor) -> Tensor:
    """Return the mask as booleans; an agent without an available action may choose any."""
    available = mask > 0
    return available | ~available.any(1, keepdim=True)
