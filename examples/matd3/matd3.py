"""MATD3: MADDPG with twin critics, smoothed target actions and delayed policies.

Ackermann, Gabler, Osa, Sugiyama: Reducing Overestimation Bias in Multi-Agent Domains Using Double
Centralized Critics, arXiv:1910.01465, after TD3 (Fujimoto, van Hoof, Meger, ICML 2018,
arXiv:1802.09477). Over the minibatch, with a'_k a noisy sample of the target policy of agent k,

    expected        = r_i + discount (1 - terminated_i) min_c Q'_ic(s', a')
    critic losses   = mean (expected - Q_ic(s, a))^2,  c = 1, 2
    policy loss     = -mean Q_i1(s, a with a_i = pi_i(o_i)),  every ``policy_delay``-th iteration

Differs from the paper: between policy updates the policy's gradient is zero, so that Adam's moments
decay, and targets move in every iteration.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fullrank.algorithms import EnvironmentSpec, register
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Statistics
from fullrank.environments.base import Continuous


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Module:
    """A perceptron with layer normalisation: any module without buffers will do."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


@register("matd3")
@dataclass(frozen=True, slots=True, kw_only=True)
class MATD3(ActorCritic):
    """MATD3, one minibatch for all agents."""

    policy_delay: int = 2
    """Iterations from one update of the policies to the next."""
    smoothing: float = 0.2
    """Standard deviation of the noise on continuous target actions, as a share of half a range."""
    smoothing_limit: float = 0.5
    """Bound of that noise, as the same share."""

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Two critics of all observations and actions, and a policy of the own observation."""
        joint = sum(spec.observation_size + spec.action.size for spec in environment.agents)
        own = environment.agents[agent]
        return {
            "critic_1": mlp(joint, self.hidden, 1),
            "critic_2": mlp(joint, self.hidden, 1),
            "policy": mlp(own.observation_size, self.hidden, own.action.size),
        }

    def statistics(self) -> tuple[str, ...]:
        """The statistics that CleanRL's TD3 logs, under its names."""
        return "qf1_values", "qf2_values", "qf1_loss", "qf2_loss", "actor_loss"

    def losses(
        self, agent: int, nets: Networks, batch: Transitions, draws: Draws
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Both critics' losses, and the policy's when its turn comes; statistics."""
        weight = batch.weight[agent]
        with torch.no_grad():
            next_actions = [
                batch.acts_next[k][:, None] * self.target_action(k, nets, batch, draws)
                for k in range(len(batch.agents))
            ]
            after = torch.cat([*batch.next_observation, *next_actions], 1)
            critics = (nets.target_critic_1[agent], nets.target_critic_2[agent])
            next_value = torch.minimum(*(critic(after)[:, 0] for critic in critics))
            expected = batch.reward[agent] + self.discount * batch.continues[agent] * next_value

        seen = torch.cat([*batch.observation, *batch.action], 1)
        values = {r: getattr(nets, r)[agent](seen)[:, 0] for r in ("critic_1", "critic_2")}
        losses = {r: (weight * (expected - own).square()).sum() for r, own in values.items()}
        outputs = nets.policy[agent](batch.observation[agent])
        actions = list(batch.action)
        actions[agent] = draws.action("policy_action", agent, outputs, batch.available[agent])
        score = nets.critic_1[agent](torch.cat([*batch.observation, *actions], 1))[:, 0]
        penalty = self.logit_penalty * outputs.square().mean(1)
        actor_loss = (weight * (penalty - score)).sum()
        means = [(weight * own).sum() for own in values.values()]
        told = dict(zip(self.statistics(), (*means, *losses.values(), actor_loss), strict=True))
        if draws.iteration % self.policy_delay == 0:
            losses["policy"] = actor_loss
        return losses, told

    def target_action(self, k: int, nets: Networks, batch: Transitions, draws: Draws) -> Tensor:
        """A sample of agent k's target policy; continuous actions are smoothed by clipped noise."""
        outputs = nets.target_policy[k](batch.next_observation[k])
        action = draws.action("target_action", k, outputs, batch.next_available[k])
        spec = batch.agents[k].action
        if not isinstance(spec, Continuous):
            return action
        low, high = (torch.tensor(each, device=action.device) for each in (spec.low, spec.high))
        noise = self.smoothing * draws.normal("smoothing", k, tuple(action.shape))
        noise = noise.clamp(-self.smoothing_limit, self.smoothing_limit) * (high - low) / 2
        return (action + noise).clamp(low, high)
