"""Independent Q-learning: every agent's value is learned for itself.

Q_t of [Tan93] has one entry for each agent, the value of its own action, with recurrent networks as
in [Rashid18]; all agents are paid the reward of the team. The loss averages over steps and agents.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.fused_values import MakeMixing
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.values import ValueLearner
from fullrank.networks.fused.mixing import Apart


@register("iql")
@dataclass(frozen=True, slots=True, kw_only=True)
class IQL(ValueLearner):
    """Independent Q-learning by gradient coding."""

    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        """Build the agents' network."""
        return {"agent": self.agent(environment)}

    def mix(self, nets: Networks, values: Tensor, state: Tensor, *, target: bool) -> Tensor:
        """Return the agents' values as they are: Q_t,i = Q(tau_i, a_i)."""
        return values

    def mixing_passes(self, nets: Networks, device: torch.device) -> MakeMixing | None:
        """Return the passes of ``mix``; subclasses, which may mix otherwise, have none."""
        if type(self) is not IQL:
            return None
        return Apart
