"""Independent soft actor-critic: an agent's critics see its own observation and action."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fullrank.algorithms.base import register
from fullrank.algorithms.sac import SAC
from fullrank.environments.base import AgentSpec, Continuous


@register("isac")
@dataclass(frozen=True, slots=True, kw_only=True)
class ISAC(SAC):
    """Soft actor-critic of each agent for itself, coded."""

    def modelled(self, agents: Sequence[AgentSpec], i: int) -> Sequence[int]:
        """Return the agent itself."""
        return [i]

    def view(
        self,
        agents: Sequence[AgentSpec],
        i: int,
        observation: Sequence[Tensor],
        action: Mapping[int, Tensor],
    ) -> Tensor:
        """Return the agent's observation, and its action where that is continuous."""
        if isinstance(agents[i].action, Continuous):
            return torch.cat([observation[i], action[i]], 1)
        return observation[i]
