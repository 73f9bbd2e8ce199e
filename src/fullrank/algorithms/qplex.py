"""QPLEX: a duel of the team's value and its advantage [Wang21b].

    Q_tot = sum_i [V_i + lambda_i(s, a) A_i] = sum_i [w_i(s) q_i + b_i(s) + (lambda_i - 1) A_i]

    A_i = w_i(s) (q_i - max Q(tau_i, .)),   V_i = w_i(s) max Q(tau_i, .) + b_i(s)

with q_i = Q(tau_i, a_i), and with w_i and lambda_i above 0. The maximum over joint actions is thus
reached by the maximum of each agent, and the joint actions are weighted beyond what is monotonic.

Differs from the paper: double Q-learning as in PyMARL; w and b depend on the state, not on
histories; as in the authors' program, no gradient passes through A_i.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.mixers import mixed, state_size
from fullrank.algorithms.trajectories import best_values, chosen_values
from fullrank.algorithms.values import ValueLearner
from fullrank.common.errors import ConfigError
from fullrank.networks.value_networks import DuellingMixer


@register("qplex")
@dataclass(frozen=True, slots=True, kw_only=True)
class QPLEX(ValueLearner):
    """QPLEX by gradient coding."""

    mixing: int = 32
    """Width of the hidden layer of b, the bias of values."""
    hypernet: int = 64
    """Width of the hidden layer of w, the weight of values."""
    heads: int = 10
    """Number of heads of the attention lambda."""

    def __post_init__(self) -> None:
        ValueLearner.__post_init__(self)
        if min(self.mixing, self.hypernet, self.heads) < 1:
            raise ConfigError("algorithm.mixing, hypernet and heads must be at least 1")

    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        """Build the agents' network and the duelling mixer."""
        layout = self.layout(environment)
        mixer = DuellingMixer(
            layout.agents,
            state_size(layout),
            max(layout.action_sizes),
            hypernet=self.hypernet,
            embed=self.mixing,
            heads=self.heads,
        )
        return {"agent": self.agent(environment), "mixer": mixer}

    def mix(self, nets: Networks, values: Tensor, state: Tensor, *, target: bool) -> Tensor:
        """Return the sum of the transformed values, Q_tot where all actions are the best."""
        return mixed(mixer_of(nets, target=target), values, state)

    def joint(
        self,
        nets: Networks,
        values: Tensor,
        action: Tensor,
        available: Tensor,
        state: Tensor,
        *,
        target: bool,
    ) -> Tensor:
        """Return Q_tot of joint actions."""
        mixer = mixer_of(nets, target=target)
        chosen, choices = chosen_values(values, action), torch.arange(values.shape[3])
        with torch.no_grad():
            weights = mixer.weights(state.flatten(0, 1)).view_as(chosen)
            advantage = weights * (chosen - best_values(values, values, available))
        taken = (action[..., None] == choices.to(action.device)).to(values.dtype)
        importance = mixer.importance(taken.flatten(0, 1), state.flatten(0, 1)).view_as(chosen)
        duel = ((importance - 1.0) * advantage).sum(2, keepdim=True)
        return self.mix(nets, chosen, state, target=target) + duel


def mixer_of(nets: Networks, *, target: bool) -> DuellingMixer:
    """Return the mixing network, or its target."""
    mixer = (nets.target_mixer if target else nets.mixer)[0]
    assert isinstance(mixer, DuellingMixer)
    return mixer
