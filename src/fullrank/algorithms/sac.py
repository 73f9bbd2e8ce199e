"""Soft actor-critic of teams: twin critics, and policies that keep an entropy.

[Haarnoja18] for continuous actions, [Christodoulou19] for discrete ones. With

    V_i(o, a_-i) = mean over a_i ~ pi_i(o_i) of [min_c Q_ic(o, a) - alpha_i ln pi_i(a_i | o_i)]

and V'_i the same of the target critics, the losses of agent i are, over the minibatch,

    critic losses     mean (r_i + discount (1 - terminated_i) V'_i(o', a'_-i) - Q_ic(o, a))^2
    policy loss       -mean V_i(o, a_-i)
    temperature loss  mean alpha_i (H_i(o_i) - target_i),   H_i = mean of -ln pi_i(a_i | o_i)

with c = 1, 2 and a'_k a draw of the policy of agent k. The mean over discrete actions is exact,
since a critic has a value for each one; that over continuous actions is of one reparameterised
draw, keyed by iteration and agent, so that every learner, straggler and host has the same. The
target of discrete actions is ``target_entropy`` times the logarithm of the number that was
available, that of continuous ones is -1 for each entry, in units of half the range.

Differs from the papers: all gradients are taken at the broadcast parameters, each variable's is
clipped, and in the policy's loss the other agents act as in the minibatch.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.likelihoods import (
    DrawnBeforeTanh,
    drawn_before_tanh,
    log_probabilities,
    wide_range,
)
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Parts, Statistics, check_micro_batches
from fullrank.common.errors import ConfigError
from fullrank.environments.base import ActionSpec, AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.networks.heads import Head, Relaxed
from fullrank.networks.modules import perceptron

CRITICS = ("critic_1", "critic_2")

STATISTICS = (
    "qf1_values",
    "qf2_values",
    "qf1_loss",
    "qf2_loss",
    "actor_loss",
    "alpha",
    "alpha_loss",
    "entropy",
)
"""The statistics that CleanRL's SAC logs, under its names, and the entropy H_i."""


class Temperature(nn.Module):
    """Weight alpha of the entropy, by its logarithm.

    Args:
        first: Alpha at the start.
    """

    def __init__(self, first: float) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.full((1,), log(first)))

    def forward(self) -> Tensor:
        """Return alpha, shape (1,)."""
        return self.logarithm.exp()


@dataclass(frozen=True, slots=True, kw_only=True)
class SAC(ActorCritic):
    """Hyperparameters and losses of soft actor-critics."""

    batch_size: int = 256
    """B, number of transitions over which an update averages."""
    hidden: int = 128
    """Width of the two hidden layers of policies and critics."""
    learning_rate: float = 0.003
    """Learning rate of Adam, for policies, critics and temperatures."""
    logit_penalty: float = field(default=0.0, init=False)
    exploration_noise: float = field(default=0.0, init=False)
    temperature: float = 0.2
    """Weight alpha of the entropy at the start, above 0; it is learned."""
    target_entropy: float = 0.5
    """Entropy that discrete actions are to have, as a share of that of uniform ones."""
    micro_batches: int = 1
    """G, number of parts of the minibatch, each of which is a unit for each agent. With one, a unit
    is an agent, clipped by learners; with more, the sums of the parts are clipped."""

    def __post_init__(self) -> None:
        ActorCritic.__post_init__(self)
        check_micro_batches(self.micro_batches, batch_size=self.batch_size)

    @abstractmethod
    def modelled(self, agents: Sequence[AgentSpec], i: int) -> Sequence[int]:
        """Return the agents whose actions the critics of agent i see."""

    @abstractmethod
    def view(
        self,
        agents: Sequence[AgentSpec],
        i: int,
        observation: Sequence[Tensor],
        action: Mapping[int, Tensor],
    ) -> Tensor:
        """Return the input of agent i's critics.

        Args:
            agents: Specifications of all agents.
            i: Index of the agent.
            observation: Observation of each agent, shape (B, observation size).
            action: Actions of the modelled agents, shape (B, action size); zero for agent i where
                critics have a value for each of its actions.
        """

    def parts(self) -> Parts | None:
        """Return the micro-batches, if there are several."""
        return Parts(self.batch_size, self.micro_batches) if self.micro_batches > 1 else None

    def statistics(self) -> tuple[str, ...]:
        """Return the names of the statistics beside the losses."""
        return STATISTICS

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the critics Q_ic, the policy pi_i and the temperature alpha_i.

        Raises:
            ConfigError: The agent's actions are several choices at once.
        """
        agents, own = environment.agents, environment.agents[agent]
        if isinstance(own.action, MultiDiscrete):
            raise ConfigError(
                f"{own.name} has {own.action.kind}, and a critic has a value for each action; use "
                "maddpg or ippo"
            )
        box = isinstance(own.action, Continuous)
        observation = [torch.empty(1, spec.observation_size) for spec in agents]
        action = {k: torch.empty(1, agents[k].action.size) for k in self.modelled(agents, agent)}
        seen = self.view(agents, agent, observation, action).shape[1]
        values, outputs = (1, 2 * own.action.size) if box else (own.action.size,) * 2
        return {
            **{role: perceptron(seen, self.hidden, values) for role in CRITICS},
            "policy": perceptron(own.observation_size, self.hidden, outputs),
            "temperature": Temperature(self.temperature),
        }

    def reads(self, environment: EnvironmentSpec, agent: int) -> Iterable[tuple[str, int]]:
        """List the agent's own networks, and the policies of modelled agents."""
        own = (*CRITICS, *(f"target_{role}" for role in CRITICS), "policy", "temperature")
        others = [("policy", k) for k in self.modelled(environment.agents, agent)]
        return [(role, agent) for role in own] + others

    def head(self, action: ActionSpec, device: torch.device) -> Head:
        """Return the head that draws actions from a policy's distribution."""
        if isinstance(action, Continuous):
            return DrawnBeforeTanh(action, device=device)
        assert isinstance(action, Discrete)  # others have no networks
        return Relaxed(replace(action, relaxed=False))

    def losses(
        self, agent: int, nets: Networks, batch: Transitions, draws: Draws
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute the losses of agent i's critics, policy and temperature, and statistics."""
        i, agents, weight = agent, batch.agents, batch.weight[agent]
        with torch.no_grad():
            after = Situation(
                agents=agents,
                observation=batch.next_observation,
                action={
                    k: self.next_action(k, nets, batch, draws)
                    for k in self.modelled(agents, i)
                    if k != i
                },
                available=batch.next_available[i],
                critics=(nets.target_critic_1[i], nets.target_critic_2[i]),
            )
            next_value, _ = self.soft_value(i, nets, after, draws, "next_action")
            expected = batch.reward[i] + self.discount * batch.continues[i] * next_value
        now = Situation(
            agents=agents,
            observation=batch.observation,
            action=dict(enumerate(batch.action)),
            available=batch.available[i],
            critics=(nets.critic_1[i], nets.critic_2[i]),
        )
        taken = self.taken(i, now, batch.action[i])
        errors = [(weight * (expected - value).square()).sum() for value in taken]
        value, entropy = self.soft_value(i, nets, now, draws, "action")
        alpha, excess = nets.temperature[i](), entropy - self.aim(agents[i].action, now.available)
        policy_loss = -(weight * value).sum()
        temperature_loss = (weight * alpha * excess).sum()
        values, temperature, mean_entropy = (
            [(weight * each).sum() for each in own] for own in (taken, [alpha], [entropy])
        )
        shares = [*values, *errors, policy_loss, *temperature, temperature_loss, *mean_entropy]
        losses = dict.fromkeys(CRITICS, errors[0] + errors[1])
        losses |= {"policy": policy_loss, "temperature": temperature_loss}
        return losses, dict(zip(STATISTICS, shares, strict=True))

    def next_action(self, k: int, nets: Networks, batch: Transitions, draws: Draws) -> Tensor:
        """Draw the next action of agent k from its policy; zero where it does not act."""
        outputs, spec = nets.policy[k](batch.next_observation[k]), batch.agents[k].action
        if isinstance(spec, Continuous):
            noise = draws.normal("next_action", k, (len(outputs), spec.size))
            action, _ = drawn_before_tanh(outputs, noise, spec)
        else:
            relaxed = draws.action("next_action", k, outputs, batch.next_available[k])
            action = one_hot(relaxed.argmax(1), spec.size).to(relaxed.dtype)
        return batch.acts_next[k][:, None] * action

    def soft_value(
        self, i: int, nets: Networks, step: "Situation", draws: Draws, purpose: str
    ) -> tuple[Tensor, Tensor]:
        """Return V_i and the entropy H_i, both of shape (B,)."""
        outputs, spec = nets.policy[i](step.observation[i]), step.agents[i].action
        if isinstance(spec, Continuous):
            noise = draws.normal(purpose, i, (len(outputs), spec.size))
            action, log_density = drawn_before_tanh(outputs, noise, spec)
            value = torch.minimum(*self.taken(i, step, action))
            entropy = -log_density
        else:
            every = log_probabilities(outputs, step.available)
            least = torch.minimum(*self.values(i, step, torch.zeros_like(outputs)))
            value = (every.exp() * least).sum(1)
            entropy = -(every.exp() * every).sum(1)
        return value + nets.temperature[i]() * entropy, entropy

    def values(self, i: int, step: "Situation", action: Tensor) -> list[Tensor]:
        """Return the outputs of both critics, given what they see of the action of agent i."""
        seen = self.view(step.agents, i, step.observation, {**step.action, i: action})
        return [critic(seen) for critic in step.critics]

    def taken(self, i: int, step: "Situation", action: Tensor) -> list[Tensor]:
        """Return both critics' values of an action of agent i, shape (B,)."""
        if isinstance(step.agents[i].action, Continuous):
            return [value[:, 0] for value in self.values(i, step, action)]
        every = self.values(i, step, torch.zeros_like(action))
        return [(values * action).sum(1) for values in every]

    def aim(self, action: ActionSpec, available: Tensor | None) -> Tensor:
        """Return the entropy that a policy is to have, shape (B,) or ()."""
        if isinstance(action, Continuous):
            _, _, wide = wide_range(action, torch.device("cpu"))
            return torch.tensor(-float(len(wide)))
        count = torch.tensor(action.size) if available is None else available.sum(1)
        return self.target_entropy * count.log()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """A step before agent i acts, and the critics that judge its action."""

    agents: Sequence[AgentSpec]
    """Specifications of all agents."""
    observation: Sequence[Tensor]
    """Observation of each agent, shape (B, observation size)."""
    action: Mapping[int, Tensor]
    """Actions of the other modelled agents, shape (B, action size); that of agent i is replaced."""
    available: Tensor | None
    """Mask of the actions of agent i, shape (B, action size); None: all are available."""
    critics: tuple[nn.Module, nn.Module]
    """Both critics of agent i, or their targets."""
