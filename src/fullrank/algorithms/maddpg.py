"""Coded MADDPG: one centralised critic and one policy per agent.

Lowe, Wu, Tamar, Harb, Abbeel, Mordatch: Multi-Agent Actor-Critic for Mixed Cooperative-Competitive
Environments, NeurIPS 2017, arXiv:1706.02275, as coded by [Wang21], Sec. III.

u_i = [gradient of the critic loss; gradient of the policy loss] with, over the minibatch,

    critic loss = mean (r_i + discount (1 - terminated_i) Q'_i(s', a') - Q_i(s, a))^2
    policy loss = -mean Q_i(s, a with a_i a sample of pi_i(o_i)) + penalty mean(logits^2)

and a'_k a sample of the target policy of agent k. Transitions in which agent i did not act have
weight 0; an agent that does not act next has a zero target action, as in stored transitions. Where
the environment offers masks, samples and the penalty are of the available actions alone.

Differences from the paper:

- u_i is a gradient, not the updated parameters; Adam and the targets run in the controller, so that
  learners are stateless and all holders of a unit compute the same bits.
- Both gradients are taken at the broadcast parameters; the authors' code updates the critic before
  it computes the policy's gradient.
- Sides named in ``ddpg_sides`` learn by DDPG, like the adversaries in some of the authors' runs:
  their critics see their own observation and action in place of (s, a); nothing else differs.
- ``target_rate`` is the weight of the new parameters (0.01), as in the MADDPG paper; tau of
  [Wang21] is the weight of the old ones (0.99).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from fullrank.algorithms.actor_critic import ActorCritic, loss_weights
from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.roles import Algorithm
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Parts, Statistics, check_micro_batches
from fullrank.common.errors import ConfigError
from fullrank.common.registry import nearest
from fullrank.environments.base import AgentSpec
from fullrank.networks.fused.critic_input import CriticInput, critic_inputs
from fullrank.networks.fused.maddpg import FusedMADDPG
from fullrank.networks.fused.network_group import FusedActor, make_groups
from fullrank.networks.fused.unit_batch import STATISTICS
from fullrank.networks.modules import perceptron
from fullrank.networks.parameters import GroupedParameters

FUSED_LAYERS = 2
"""Number of hidden layers for which hand-written updates exist."""


@register("maddpg")
@dataclass(frozen=True, slots=True, kw_only=True)
class MADDPG(ActorCritic):
    """Coded MADDPG; all agents share one minibatch.

    The defaults learn the particle tasks soonest (ADR 40); [Wang21] has a batch of 1,024, networks
    of width 64 and a learning rate of 0.01.
    """

    batch_size: int = 256
    """B, number of transitions over which an update averages."""
    hidden: int = 128
    """Width of the hidden layers of policies and critics."""
    learning_rate: float = 0.003
    """Learning rate of Adam, for policies and critics."""
    hidden_layers: int = FUSED_LAYERS
    """Number of hidden layers of policies and critics; 2 uses the faster hand-written updates,
    unless the environment offers masks of actions."""
    ddpg_sides: tuple[str, ...] = ()
    """Sides whose critics see only their own agent's observation and action."""
    micro_batches: int = 1
    """G, number of parts of the minibatch, each of which is a unit for each agent and a draw of its
    own, since all transitions are drawn with replacement. With one, a unit is an agent, clipped by
    learners; with more, the sums of the parts are clipped."""

    critic_input: ClassVar[CriticInput] = CriticInput.CENTRALISED
    """Kind of the critics' input on all other sides."""

    def __post_init__(self) -> None:
        ActorCritic.__post_init__(self)
        if self.hidden_layers < 1:
            raise ConfigError("algorithm.hidden_layers must be at least 1")
        check_micro_batches(self.micro_batches, batch_size=self.batch_size)

    def parts(self) -> Parts | None:
        """Return the micro-batches, if there are several."""
        return Parts(self.batch_size, self.micro_batches) if self.micro_batches > 1 else None

    def statistics(self) -> tuple[str, ...]:
        """Return the names of the statistics beside the losses."""
        return STATISTICS

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the critic Q_i and the policy pi_i, both perceptrons."""
        spec, layout = environment.agents[agent], environment.layout
        inputs = critic_inputs(self.critic_inputs(environment.agents)[agent], layout, agent)
        return {
            "critic": perceptron(inputs, self.hidden, 1, layers=self.hidden_layers),
            "policy": perceptron(
                spec.observation_size, self.hidden, spec.action.size, layers=self.hidden_layers
            ),
        }

    def losses(
        self, agent: int, nets: Networks, batch: Transitions, draws: Draws
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute the critic loss and the policy loss of agent i, and statistics."""
        i, weight = agent, batch.weight[agent]
        with torch.no_grad():
            next_action = {
                k: batch.acts_next[k][:, None]
                * draws.action(
                    "target_action",
                    k,
                    nets.target_policy[k](batch.next_observation[k]),
                    batch.next_available[k],
                )
                for k in self.modelled(batch.agents, i)
            }
            next_view = self.critic_view(batch.agents, i, batch.next_observation, next_action)
            next_value = nets.target_critic[i](next_view)[:, 0]
            expected = batch.reward[i] + self.discount * batch.continues[i] * next_value

        action = dict(enumerate(batch.action))
        view = self.critic_view(batch.agents, i, batch.observation, action)
        value = nets.critic[i](view)[:, 0]
        critic_loss = (weight * (expected - value).square()).sum()

        logits = nets.policy[i](batch.observation[i])
        action[i] = draws.action("policy_action", i, logits, batch.available[i])
        view = self.critic_view(batch.agents, i, batch.observation, action)
        score = nets.critic[i](view)[:, 0]
        size = mean_square(logits, batch.available[i])
        policy_loss = (weight * (self.logit_penalty * size - score)).sum()
        losses = {"critic": critic_loss, "policy": policy_loss}
        shares = critic_loss, (weight * value).sum(), policy_loss
        return losses, dict(zip(STATISTICS, shares, strict=True))

    def critic_view(
        self,
        agents: Sequence[AgentSpec],
        i: int,
        observation: Sequence[Tensor],
        action: Mapping[int, Tensor],
    ) -> Tensor:
        """Return the input of agent i's critic: (s, a), or (o_i, a_i) in DDPG."""
        if agents[i].side in self.ddpg_sides:
            return torch.cat([observation[i], action[i]], 1)
        return torch.cat([*observation, *(action[k] for k in range(len(agents)))], 1)

    def modelled(self, agents: Sequence[AgentSpec], i: int) -> Sequence[int]:
        """Return the agents whose target actions agent i's critic sees: all, or i in DDPG."""
        return [i] if agents[i].side in self.ddpg_sides else range(len(agents))

    def interface(self, environment: EnvironmentSpec, agent: int) -> Hashable:
        """Return what agents of a group have in common, also the kind of their critics."""
        own = ActorCritic.interface(self, environment, agent)
        return own, self.critic_inputs(environment.agents)[agent]

    def reads(self, environment: EnvironmentSpec, agent: int) -> Iterable[tuple[str, int]]:
        """List the agent's policy and critics, and the target policies of modelled agents."""
        own = [(role, agent) for role in ("policy", "critic", "target_critic")]
        return own + [("target_policy", k) for k in self.modelled(environment.agents, agent)]

    def critic_inputs(self, agents: Sequence[AgentSpec]) -> tuple[CriticInput, ...]:
        """Return the kind of each agent's critic.

        Raises:
            ConfigError: A named side has no agent.
        """
        sides = sorted({agent.side for agent in agents})
        for side in self.ddpg_sides:
            if side not in sides:
                raise ConfigError(
                    f"algorithm.ddpg_sides: no agent plays for {side!r}{nearest(side, sides)}"
                )
        return tuple(
            CriticInput.LOCAL if agent.side in self.ddpg_sides else self.critic_input
            for agent in agents
        )

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes; hand-written updates are accelerated.

        By the command line an NVIDIA H200 made 1.4 times as many iterations of the default run as
        one thread of its host, 3.3 times as many as eight with 8 agents of width 1,024
        (docs/measurements.md, "One card").
        """
        described = ActorCritic.problem(self, environment)
        return replace(described, accelerated=self.is_hand_written(environment))

    @property
    def hand_written(self) -> bool:
        """Return True; subclasses, which may compute otherwise, learn by autograd."""
        return type(self) is MADDPG

    def is_hand_written(self, environment: EnvironmentSpec) -> bool:
        """Return whether updates are hand-written rather than computed by autograd.

        These are for two hidden layers, without masks and networks that agents share.
        """
        plain = self.hidden_layers == FUSED_LAYERS and not environment.masked
        return plain and ActorCritic.is_hand_written(self, environment)

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles, with hand-written updates where there are some."""
        if not self.is_hand_written(environment):
            return ActorCritic.make(self, environment, seed=seed, device=device)
        layout = environment.layout
        groups = make_groups(
            environment.agents,
            layout,
            critic_inputs=self.critic_inputs(environment.agents),
            hidden=self.hidden,
            noise=self.exploration_noise,
            device=device_of(device),
            seed=seed,
        )
        parts, parameters = self.parts(), GroupedParameters(groups)
        gradients = FusedMADDPG(
            groups,
            layout,
            loss_weights(self, parts),
            parts=() if parts is None else parts.ranges,
            factor=parameters.factor,
            seed=seed,
        )
        return Algorithm(
            problem=self.problem(environment),
            parameters=parameters,
            gradients=gradients,
            optimiser=self.optimiser(environment, parameters),
            actor=FusedActor(groups, layout, kernel=gradients.kernel, seed=seed),
        )


def mean_square(logits: Tensor, available: Tensor | None) -> Tensor:
    """Return the mean square of the available actions' logits, shape (B,)."""
    if available is None:
        return logits.square().mean(1)
    return (logits.square() * available).sum(1) / available.sum(1)
