"""Counterfactual multi-agent policy gradients: COMA [Foerster18].

A critic, of which each group of agents that share networks has one, gives agent a a value
Q(s, (u_-a, .)) of each of its actions beside those that the others took. Over a minibatch, with
u_a the agent's action,

    L = - mean of A ln pi(u_a | o_a) + 1/2 mean of (Q(s, u) - y)^2 - entropy_weight H

    A = Q(s, u) - sum over u' of pi(u' | o_a) Q(s, (u_-a, u')),   no gradient of which is taken

    y_t = r_t + discount (1 - terminated_t) [(1 - trace) Q'(s_(t+1), u_(t+1)) + trace y_(t+1)]

where Q' is the target critic with which the collection was played. The means of A ln pi and of the
entropy H run over the steps in which an agent of the group had a choice, that of the critic over
its steps and agents, which are those of ``fullrank.algorithms.ppo``; terminated_t is the agent's
own where it learns from its own reward. An agent that cannot act counts as one that takes its first
action, also where the value of its last state follows its own time limit.

Differs from the paper: policies explore by an entropy bonus, with no floor of probabilities; critic
and policy step together; the critic does not see the last actions; an episode that a time limit cut
off goes on with the likeliest actions; any reward or sharing; networks without a memory on request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.likelihoods import log_probabilities
from fullrank.algorithms.on_policy import GroupMembers, Steps, WholeMinibatch, viewers
from fullrank.algorithms.on_policy_learner import OnPolicy
from fullrank.algorithms.policies import over_episodes, policy_of, policy_outputs, seeing
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.networks.fused import kernels
from fullrank.networks.images import Model, Seeing, image_of, kept, name_recurrent
from fullrank.networks.modules import perceptron
from fullrank.networks.value_networks import RecurrentAgent
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout, episodes_in

ENTRIES = Entries(
    ("actor_loss", "qf1_loss", "qf1_values", "target_mean", "entropy"), marking="qf1_loss"
)
"""Mean of -A ln pi, loss of the critic, means of Q(s, u) and of y, and the policy's entropy."""


@register("coma")
@dataclass(frozen=True, slots=True, kw_only=True)
class COMA(OnPolicy):
    """COMA by gradient coding."""

    reward: Literal["own", "team"] = "team"
    """Reward from which an agent learns: ``team``, that of all agents together, who are one side
    then; ``own``, that of the agent."""
    trace: float = 0.8
    """Weight lambda of longer returns in the critic's targets."""
    time_limit_bootstrap: bool = True
    """Let an episode, or an agent, that a time limit cut off go on with the value after its last
    step; false: nothing is expected after it."""
    target_every: int = 25
    """Number of updates between two copies of the parameters to the target critic."""
    model: Model = "auto"
    """Networks: ``mlp``, perceptrons; ``gru``, these with ``recurrent`` set; ``cnn``, convolutions
    below them, of images of bytes, which policy and critic share; ``auto``: ``cnn`` where all
    agents observe such images."""
    layer_norm: bool = False
    """Normalise hidden layers before ReLU."""

    entries: ClassVar[Entries] = ENTRIES
    read: ClassVar[tuple[str, ...]] = ("policy", "critic")
    prepared_by: ClassVar[tuple[str, ...]] = ("target_critic",)

    def __post_init__(self) -> None:
        OnPolicy.__post_init__(self)
        name_recurrent(self)
        if self.target_every < 1:
            raise ConfigError("algorithm.target_every must be at least 1")

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step; that of images has no other state than they are."""
        return kept(OnPolicy.layout(self, environment), self.model, environment.agents)

    def members(self, environment: EnvironmentSpec) -> tuple[GroupMembers, ...]:
        """Return the members of each group, which observe features of images."""
        image = image_of(self.model, environment.agents)
        return viewers(OnPolicy.members(self, environment), image, features=self.hidden)

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the policy and the critic of an agent's group; the policy has the encoder."""
        own, layout = self.group_of(environment, agent), self.layout(environment)
        state = layout.state_entries
        if own.image is not None:
            state = layout.agents * own.observation
        seen = state + own.observation + layout.agents * max(layout.action_sizes)
        layers = partial(perceptron, normalised=self.layer_norm)
        build = partial(RecurrentAgent, normalised=self.layer_norm) if self.recurrent else layers
        return {
            "policy": policy_of(own, build, hidden=self.hidden, normalised=self.layer_norm),
            "critic": layers(own.width(seen), self.hidden, own.actions),
        }

    def seen(self, own: GroupMembers, nets: Networks, steps: Steps) -> Steps:
        """Return steps in which all agents observe features, if they observe images."""
        policy = nets.policy[own.agents[0]]
        return seeing(own, policy, steps, joint=True) if isinstance(policy, Seeing) else steps

    def critic_sees(self, own: GroupMembers, steps: Steps) -> Tensor:
        """Return the state, the own observation and the others' actions, by row and member."""
        agents, rows = list(own.agents), len(steps.state)
        actions = steps.state.new_zeros(steps.available.shape)
        actions.scatter_(2, steps.action[..., None], steps.acted[..., None].to(actions.dtype))
        others = 1.0 - torch.eye(actions.shape[1], device=actions.device)[agents, :, None]
        parts = [
            steps.state[:, None].expand(-1, len(agents), -1),
            steps.observation[:, agents, : own.observation],
            (actions[:, None] * others).reshape(rows, len(agents), -1),
        ]
        return own.inputs(torch.cat(parts, 2))

    def losses(
        self, own: GroupMembers, nets: Networks, steps: Steps, whole: WholeMinibatch
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of L and of the statistics; see ``OnPolicy.losses``."""
        first, agents = own.agents[0], list(own.agents)
        action, acts = steps.action[:, agents, None], steps.acts[:, agents]
        earns, steps = steps.earns[:, agents], self.seen(own, nets, steps)
        expected = steps.derived["value"][:, agents] + steps.derived["advantage"][:, agents]
        available = steps.available[:, agents, : own.actions]
        every = log_probabilities(policy_outputs(own, nets, steps), available)
        values = nets.critic[first](self.critic_sees(own, steps))
        taken = values.gather(2, action)[..., 0]
        advantage = (taken - (every.exp() * values).sum(2)).detach()
        gained = advantage * every.gather(2, action)[..., 0]
        statistics = {
            "actor_loss": -(gained * acts).sum() / whole.acted,
            "qf1_loss": ((taken - expected).square() * earns).sum() / whole.count / 2,
            "qf1_values": (taken * earns).sum() / whole.count,
            "target_mean": (expected * earns).sum() / whole.count,
            "entropy": -((every.exp() * every).sum(2) * acts).sum() / whole.acted,
        }
        loss = statistics["actor_loss"] + statistics["qf1_loss"]
        loss = loss - self.entropy_weight * statistics["entropy"]
        found = {name: each.detach() for name, each in statistics.items()}
        return {"policy": loss, "critic": loss}, found

    def judged(self, own: GroupMembers, nets: Networks, steps: Steps) -> Mapping[str, Tensor]:
        """Return the target critic's values of the actions."""
        critic, steps = nets.target_critic[own.agents[0]], self.seen(own, nets, steps)
        seen = self.critic_sees(own, steps)
        values = over_episodes(critic, seen, steps.lengths, apart=steps.apart)
        return {"value": values.gather(2, steps.action[:, list(own.agents), None])[..., 0]}

    def prepare_together(
        self,
        rows: FloatArray,
        nets: Networks,
        groups: tuple[GroupMembers, ...],
        layout: EpisodeLayout,
    ) -> None:
        """Fill derived columns of episodes, which go on with the likeliest actions."""
        episodes = [rows[place] for place in episodes_in(rows, layout.length)]
        last = np.cumsum([len(episode) for episode in episodes]) - 1
        played = rows[last, layout.action].copy()
        steps = Steps(episodes, layout, device=next(nets.policy[0].parameters()).device, apart=True)
        with kernels.DEFAULT.selected(), torch.no_grad():
            for own in groups:
                agents = list(own.agents)
                available = steps.available[last][:, agents, : own.actions]
                outputs = policy_outputs(own, nets, self.seen(own, nets, steps))
                every = log_probabilities(outputs[last], available)
                likeliest = every.argmax(2).where(available.any(2), int(NO_ACTION))
                columns = layout.action.start + np.array(agents)
                rows[last[:, None], columns] = likeliest.cpu().numpy()
        OnPolicy.prepare_together(self, rows, nets, groups, layout)
        rows[last, layout.action] = played

    @property
    def target_updates(self) -> int:
        """Return ``target_every``."""
        return self.target_every
