"""Hysteretic Q-learning: agents that forgive each other's exploration; value-based.

Matignon, Laurent, Le Fort-Piat: Hysteretic Q-Learning: an algorithm for decentralized reinforcement
learning in cooperative multi-agent teams, IROS 2007; with networks and a memory as in Omidshafiei,
Pazis, Amato, How, Vian, ICML 2017, arXiv:1703.06182. With G the target of an agent's own value Q,

    loss = mean of w (G - Q)^2,   w = 1 where G >= Q, else ``forgiveness``

so that a low reward, which another agent may have caused, lowers a value slowly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fullrank.algorithms import EnvironmentSpec, register
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.trajectories import Trajectories, best_actions
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.algorithms.values import ValueLearner

ENTRIES = Entries(("loss", "td_error_abs", "q_values"), marking="td_error_abs")


@register("hysteretic")
@dataclass(frozen=True, slots=True, kw_only=True)
class Hysteretic(ValueLearner):
    """Hysteretic Q-learning by gradient coding."""

    forgiveness: float = 0.4
    """Weight of the errors by which a value falls, beta / alpha in the paper."""
    entries: ClassVar[Entries] = ENTRIES

    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        """The agents' network of action values."""
        return {"agent": self.agent(environment)}

    def mix(self, nets: Networks, values: Tensor, state: Tensor, *, target: bool) -> Tensor:
        """The agents' values as they are."""
        return values

    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """A unit's share of the loss, and of the means of the loss, of |G - Q| and of Q."""
        values = self.values(nets.agent[0], batch)
        available, state = batch.available, batch.state
        with torch.no_grad():
            after = self.values(nets.target_agent[0], batch)[1:]
            best = best_actions(values[1:] if self.double else after, available[1:])
            after = self.joint(nets, after, best, available[1:], state[1:], target=True)
            expected = self.returns(after, batch)
        now = (values[:-1], batch.action, available[:-1], state[:-1])
        value = self.joint(nets, *now, target=False)
        valid, count = batch.valid[..., None], batch.steps * value.shape[2]
        error = (expected - value) * valid
        weight = torch.where(error < 0, self.forgiveness, 1.0)
        loss = (weight * error.square()).sum() / count
        told = (loss, error.abs().sum() / count, (value * valid).sum() / count)
        return {"agent": loss}, {
            name: each.detach() for name, each in zip(ENTRIES.names, told, strict=True)
        }
