"""QMIX: the team's value rises with every agent's value [Rashid18].

    Q_tot = w_2(s)^T elu(W_1(s)^T q + b_1(s)) + V(s),   q_i = Q(tau_i, a_i)

with W_1 and w_2 the magnitudes of the hypernetworks' outputs for the state s. The maximum over
joint actions is thus reached by the maximum of each agent.

Differs from the paper: double Q-learning and two-layer hypernetworks, as in PyMARL.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.fused_values import MakeMixing
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.mixers import mixed, monotonic
from fullrank.algorithms.values import ValueLearner
from fullrank.common.errors import ConfigError
from fullrank.networks.fused.mixing import Monotonic
from fullrank.networks.value_networks import MonotonicMixer


@register("qmix")
@dataclass(frozen=True, slots=True, kw_only=True)
class QMIX(ValueLearner):
    """QMIX by gradient coding."""

    mixing: int = 32
    """Width of the mixing layer."""
    hypernet: int = 64
    """Width of the hidden layer of the hypernetworks."""
    hypernet_layers: int = 2
    """Number of layers of the hypernetworks of weights, 1 or 2."""

    def __post_init__(self) -> None:
        ValueLearner.__post_init__(self)
        if self.hypernet_layers not in (1, 2) or min(self.mixing, self.hypernet) < 1:
            raise ConfigError(
                "algorithm.hypernet_layers must be 1 or 2, and mixing and hypernet at least 1"
            )

    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        """Build the agents' network and the mixing network."""
        mixer = monotonic(
            self.layout(environment),
            mixing=self.mixing,
            hypernet=self.hypernet,
            hypernet_layers=self.hypernet_layers,
        )
        return {"agent": self.agent(environment), "mixer": mixer}

    def mix(self, nets: Networks, values: Tensor, state: Tensor, *, target: bool) -> Tensor:
        """Return Q_tot of the mixing network."""
        return mixed((nets.target_mixer if target else nets.mixer)[0], values, state)

    def mixing_passes(self, nets: Networks, device: torch.device) -> MakeMixing | None:
        """Return the passes of ``mix``; subclasses, which may mix otherwise, have none."""
        if type(self) is not QMIX:
            return None
        mixer, start = nets.mixer[0], nets.parameters.groups[0].networks["mixer"].start
        assert isinstance(mixer, MonotonicMixer)
        return partial(Monotonic, mixer, start, device=device)
