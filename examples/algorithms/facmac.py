"""FACMAC: a value of each agent's action, mixed into that of the team; off-policy.

Peng, Rashid, Schroeder de Witt, Kamienny, Torr, Böhmer, Whiteson: FACMAC: Factored Multi-Agent
Centralised Policy Gradients, NeurIPS 2021, arXiv:2003.06709. With s all observations,

    Q_tot(s, a) = mix(Q(o_1, a_1), ..., Q(o_n, a_n); s)
    expected    = mean of r_k + discount (1 - terminated_i) Q'_tot(s', a')
    critic loss = mean (expected - Q_tot(s, a))^2,  of the critic and the mixer
    policy loss = -mean Q_tot(s, pi_1(o_1), ..., pi_n(o_n))

where a' is drawn from the target policies, and the mixer is QMIX's, monotonic in every value.
Agents share their networks by default, as in the paper; agents that do not have a mixer each.
Differs from the paper: networks have no memory and see no identity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fullrank.algorithms import EnvironmentSpec, register
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.groups import Networks, Sharing
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Statistics


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Module:
    """A perceptron of two hidden layers."""
    layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


class Mixer(nn.Module):
    """The value of the team from those of n agents, with weights made of the state."""

    def __init__(self, agents: int, state: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.weight, self.bias = nn.Linear(state, agents * width), nn.Linear(state, width)
        self.last, self.base = nn.Linear(state, width), mlp(state, width, 1)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Mix values of shape (B, n) into (B,)."""
        weight = self.weight(state).abs().unflatten(1, (-1, self.width))
        hidden = nn.functional.elu((values[:, :, None] * weight).sum(1) + self.bias(state))
        return (hidden * self.last(state).abs()).sum(1) + self.base(state)[:, 0]


@register("facmac")
@dataclass(frozen=True, slots=True, kw_only=True)
class FACMAC(ActorCritic):
    """FACMAC with a monotonic mixer."""

    learning_rate: float = 0.001
    """Learning rate of Adam, for policies, critics and the mixer."""
    share: Sharing = "all"
    """Agents that share networks, and so one mixer: ``all``; ``side``; ``none``; or a table."""
    mixing: int = 32
    """Width of the mixer."""

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """The value of an own action, the mixer of all values, and a policy."""
        own, everyone = environment.agents[agent], environment.agents
        state = sum(spec.observation_size for spec in everyone)
        return {
            "critic": mlp(own.observation_size + own.action.size, self.hidden, 1),
            "mixer": Mixer(len(everyone), state, self.mixing),
            "policy": mlp(own.observation_size, self.hidden, own.action.size),
        }

    def statistics(self) -> tuple[str, ...]:
        """The losses, and the mean value of the actions that were taken."""
        return "critic_loss", "actor_loss", "q_taken_mean"

    def losses(
        self, agent: int, nets: Networks, batch: Transitions, draws: Draws
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """The losses of the critics, of the mixer and of the policy."""
        weight, every = batch.weight[agent], range(len(batch.agents))
        with torch.no_grad():
            outputs = [nets.target_policy[k](batch.next_observation[k]) for k in every]
            after = [
                batch.acts_next[k][:, None]
                * draws.action("target_action", k, outputs[k], batch.next_available[k])
                for k in every
            ]
            value = self.mixed(agent, nets, batch.next_observation, after, target=True)
            paid = torch.stack(list(batch.reward), 1).mean(1)
            expected = paid + self.discount * batch.continues[agent] * value

        taken = self.mixed(agent, nets, batch.observation, batch.action)
        error = (weight * (expected - taken).square()).sum()
        outputs = [nets.policy[k](batch.observation[k]) for k in every]
        actions = [draws.action("policy", k, outputs[k], batch.available[k]) for k in every]
        score = self.mixed(agent, nets, batch.observation, actions)
        penalty = self.logit_penalty * outputs[agent].square().mean(1)
        policy = (weight * (penalty - score)).sum()
        found = (error, policy, (weight * taken).sum())
        losses = {"critic": error, "mixer": error, "policy": policy}
        return losses, dict(zip(self.statistics(), found, strict=True))

    def mixed(
        self,
        agent: int,
        nets: Networks,
        seen: Sequence[Tensor],
        actions: Sequence[Tensor],
        *,
        target: bool = False,
    ) -> Tensor:
        """Q_tot of joint actions by an agent's mixer, shape (B,)."""
        critics = nets.target_critic if target else nets.critic
        mixer = (nets.target_mixer if target else nets.mixer)[agent]
        pairs = enumerate(zip(seen, actions, strict=True))
        values = torch.cat([critics[k](torch.cat(pair, 1)) for k, pair in pairs], 1)
        mixed: Tensor = mixer(values, torch.cat(list(seen), 1))
        return mixed
