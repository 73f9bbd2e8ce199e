"""Coded MFAC: MADDPG whose critics see the mean of the other agents' actions.

Yang, Luo, Li, Zhou, Zhang, Wang: Mean Field Multi-Agent Reinforcement Learning, ICML 2018,
arXiv:1802.05438, as the baseline of [DARL1N], Sec. VI:

    Q_i(s, a) = Q_i(o_1, ..., o_M, a_i, sum_{k != i} a_k / (M - 1))

and all else, the actor too, as in ``fullrank.algorithms.maddpg``.

Differs from the papers in:

- The mean is over all other agents, as in [DARL1N]; [Yang18] takes it over the neighbours.
- Discrete actions are relaxed and the policy's gradient passes through the critic, as in [DARL1N];
  [Yang18] has a discrete Q and the Boltzmann policy, or the advantage.
- Dead agents have zero actions and still count in M - 1, as in [DARL1N].
- Teams of unequal actions, which the papers do not have: shorter ones are padded with zeros.
"""

from dataclasses import dataclass
from typing import ClassVar

from fullrank.algorithms.base import register
from fullrank.algorithms.maddpg import MADDPGConfig
from fullrank.networks.fused.sight import Sight


@register("mfac")
@dataclass(frozen=True, slots=True, kw_only=True)
class MFACConfig(MADDPGConfig):
    """Coded MFAC with the hyperparameters of [DARL1N], which are those of [Wang21]."""

    sight: ClassVar[Sight] = Sight.MEAN_FIELD
