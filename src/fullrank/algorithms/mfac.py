"""Coded MFAC: MADDPG whose critics see the mean of the other agents' actions.

Yang, Luo, Li, Zhou, Zhang, Wang: Mean Field Multi-Agent Reinforcement Learning, ICML 2018,
arXiv:1802.05438, as the baseline of [DARL1N], Sec. VI:

    Q_i(s, a) = Q_i(o_1, ..., o_M, a_i, sum_{k != i} a_k / (M - 1))

with everything else, including the actor, as in ``fullrank.algorithms.maddpg``.

Differences from the papers:

- The mean is over all other agents, as in [DARL1N]; [Yang18] averages over the neighbours.
- Discrete actions are relaxed and the policy's gradient passes through the critic, as in [DARL1N];
  [Yang18] uses a discrete Q and the Boltzmann policy, or the advantage.
- Dead agents have zero actions and still count in M - 1, as in [DARL1N].
- Teams with unequal action sizes, absent from the papers, pad shorter actions with zeros.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.problem import Problem
from fullrank.environments.base import AgentSpec
from fullrank.networks.fused.critic_input import CriticInput


@register("mfac")
@dataclass(frozen=True, slots=True, kw_only=True)
class MFAC(MADDPG):
    """Coded MFAC with the hyperparameters of [DARL1N], which are those of [Wang21]."""

    critic_input: ClassVar[CriticInput] = CriticInput.MEAN_FIELD

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes; no update was measured on a card."""
        return replace(MADDPG.problem(self, environment), accelerated=False)

    def critic_view(
        self,
        agents: Sequence[AgentSpec],
        i: int,
        observation: Sequence[Tensor],
        action: Mapping[int, Tensor],
    ) -> Tensor:
        """Return the input of agent i's critic: (s, a_i, mean of the others' actions)."""
        if agents[i].side in self.ddpg_sides:
            return MADDPG.critic_view(self, agents, i, observation, action)
        widest = max(agent.action.size for agent in agents)
        others = [pad(action[k], (0, widest - action[k].shape[1])) for k in action if k != i]
        mean = sum(others, action[i].new_zeros(len(action[i]), widest)) / max(len(agents) - 1, 1)
        return torch.cat([*observation, action[i], mean], 1)

    @property
    def hand_written(self) -> bool:
        """Return True; subclasses, which may compute otherwise, learn by autograd."""
        return type(self) is MFAC
