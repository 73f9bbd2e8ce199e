"""Multi-agent soft actor-critic: critics see all observations and actions, as in [Lowe17].

Agents that share critics are told apart by the zeros in place of their own discrete action; of
continuous ones, they learn the mean of the agents' values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fullrank.algorithms.base import register
from fullrank.algorithms.sac import SAC
from fullrank.environments.base import AgentSpec


@register("masac")
@dataclass(frozen=True, slots=True, kw_only=True)
class MASAC(SAC):
    """Soft actor-critic with centralised critics, coded."""

    def modelled(self, agents: Sequence[AgentSpec], i: int) -> Sequence[int]:
        """Return all agents."""
        return range(len(agents))

    def view(
        self,
        agents: Sequence[AgentSpec],
        i: int,
        observation: Sequence[Tensor],
        action: Mapping[int, Tensor],
    ) -> Tensor:
        """Return all observations and actions."""
        return torch.cat([*observation, *(action[k] for k in range(len(agents)))], 1)
