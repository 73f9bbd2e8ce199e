"""Value-decomposition networks: the team's value is the sum of the agents' values [Sunehag18].

    Q_tot = sum_i Q(tau_i, a_i)

Differs from the paper: agents share one network and see their index and last action, as in
[Rashid18]; there is no duelling head.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.fused_values import MakeMixing
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.values import ValueLearner
from fullrank.networks.fused.mixing import Sum


@register("vdn")
@dataclass(frozen=True, slots=True, kw_only=True)
class VDN(ValueLearner):
    """Value-decomposition networks by gradient coding."""

    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        """Build the agents' network."""
        return {"agent": self.agent(environment)}

    def mix(self, nets: Networks, values: Tensor, state: Tensor, *, target: bool) -> Tensor:
        """Return Q_tot: the sum over agents."""
        return values.sum(2, keepdim=True)

    def mixing_passes(self, nets: Networks, device: torch.device) -> MakeMixing | None:
        """Return the passes of ``mix``; subclasses, which may mix otherwise, have none."""
        if type(self) is not VDN:
            return None
        return Sum
