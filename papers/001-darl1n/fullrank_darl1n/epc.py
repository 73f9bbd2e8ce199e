"""EPC's networks for teams of any size ([Long20], Sec. 4.1), trained with MADDPG's losses.

Long, Zhou, Gupta, Fang, Wu, Wang: Evolutionary Population Curriculum for Scaling Multi-Agent
Reinforcement Learning, ICLR 2020, arXiv:2003.10423, as the baseline of [DARL1N], Sec. VI, in Food
Collection. Entities of a kind share an encoder e = relu(W2 relu(W1 x)), and an agent pools those of
a kind into sum_j softmax_j(e_own . e_j / sqrt(32)) e_j, followed by layer normalisation and a
rectifier. The critic of agent i encodes its own observation and action by one such network and
those of all others by another, attends among all agents once, then from agent i to the others.
Agents share no weights, or a team could not begin with halves of two parents.

Differs from the authors' code: all heads have leaky rectifiers, where the critic's encoders have
plain ones there; both gradients are taken at the same parameters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.autograd import BatchOf
from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, UnitIndex
from fullrank_darl1n.published import EPC, FOOD

HIDDEN, WIDTH = 64, 32
"""Widths of hidden layers and of encodings."""
OWN, PIECE, OTHER = 5, 2, 5
"""Entries of an agent itself, of a piece of food, and of another agent."""


def layers(*widths: int, between: type[nn.Module]) -> nn.Sequential:
    """Linear layers, Glorot-uniform with zero biases, each followed by a rectifier."""
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        parts += [linear, between(inplace=True)]
    return nn.Sequential(*parts)


def entities(observation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Entries of the agent, shape (..., 5), of food, (..., M, 2), and of others, (..., M - 1, 5).

    An observation of Food Collection that sees all has 8 M entries; see ``arena.crowd.see``.
    """
    agents = observation.shape[-1] // (3 + OTHER)
    widths = [OWN, 3 * agents, 2 * agents - 2, 2 * agents - 2, agents - 1]
    own, *parts = torch.split(observation, widths, dim=-1)
    food, position, velocity, life = (
        part.reshape(*part.shape[:-1], -1, size)
        for part, size in zip(parts, (3, 2, 2, 1), strict=True)
    )
    return own, food[..., :PIECE], torch.cat([position, velocity, life], -1)


class Pool(nn.Module):
    """Attention of one vector to those of n entities."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, query: Tensor, of: Tensor, present: Tensor | None = None) -> Tensor:
        """Shape (..., WIDTH), from (..., WIDTH), (..., n, WIDTH) and a mask (..., n)."""
        scores = (of @ query.unsqueeze(-1)).squeeze(-1) / WIDTH**0.5
        if present is not None:
            scores = scores.masked_fill(~present, -1e9)
        weights = torch.softmax(scores, dim=-1)
        weights = weights if present is None else weights * present
        return torch.relu(self.norm((weights.unsqueeze(-2) @ of).squeeze(-2)))


class EntityNetwork(nn.Module):
    """A network over an agent's observation: the policy, and the encoders of the critic.

    Args:
        actions: Entries of the action that is seen with the observation; 0: none.
        outputs: Number of outputs.
    """

    def __init__(self, actions: int, outputs: int) -> None:
        super().__init__()
        sizes = (OWN + actions, PIECE, OTHER)
        self.encoders = nn.ModuleList(
            layers(size, HIDDEN, WIDTH, between=nn.ReLU) for size in sizes
        )
        self.pools = nn.ModuleList(Pool() for _ in sizes[1:])
        widths = (len(sizes) * WIDTH, HIDDEN, HIDDEN, outputs)
        self.head = layers(*widths, between=nn.LeakyReLU)[:-1]

    def forward(self, observation: Tensor, action: Tensor | None = None) -> Tensor:
        """Shape (..., outputs); places that hold nothing but zeros are empty."""
        own, *kinds = entities(observation)
        own = self.encoders[0](own if action is None else torch.cat([own, action], -1))
        pooled = [
            pool(own, encode(kind), (kind != 0).any(-1))
            for encode, pool, kind in zip(self.encoders[1:], self.pools, kinds, strict=True)
        ]
        outputs: Tensor = self.head(torch.cat([own, *pooled], -1))
        return outputs


class Critic(nn.Module):
    """An agent's value of all observations and actions.

    Args:
        actions: Entries of an action.
    """

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.own, self.others = (EntityNetwork(actions, WIDTH) for _ in range(2))
        self.query, self.key, self.content = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.pool = nn.LayerNorm(WIDTH), Pool()
        self.head = layers(2 * WIDTH, HIDDEN, HIDDEN, 1, between=nn.LeakyReLU)[:-1]

    def forward(self, observation: Tensor, action: Tensor, around: Tensor) -> Tensor:
        """Values, shape (B,).

        Args:
            observation: The agent's, shape (B, observation size).
            action: The agent's, shape (B, actions).
            around: The others, encoded by ``others``, shape (B, M - 1, WIDTH).
        """
        own = self.own(observation, action)
        team = torch.cat([own.unsqueeze(-2), around], -2)
        scores = self.query(team) @ self.key(team).transpose(-1, -2) / WIDTH**0.5
        team = torch.relu(self.norm(torch.softmax(scores, dim=-1) @ self.content(team)))
        pooled = self.pool(team[..., 0, :], team[..., 1:, :])
        value: Tensor = self.head(torch.cat([own, pooled], -1)).squeeze(-1)
        return value


class TeamTransitions(Transitions):
    """B transitions of M equal agents."""

    next_action: Tensor | None = None
    """Actions of the target policies, the same for all critics, shape (B, M, actions)."""


@register(EPC)
@dataclass(frozen=True, slots=True, kw_only=True)
class EntityMADDPG(ActorCritic):
    """MADDPG with networks for teams of any size, in Food Collection."""

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the critic and the policy.

        Raises:
            ConfigError: Observations are not those of agents who see all in Food Collection.
        """
        spec, agents = environment.agents[agent], len(environment.agents)
        if spec.observation_size != (3 + OTHER) * agents:
            raise ConfigError(
                f"{EPC} plays {FOOD.name} in which all agents see all food and each other: set "
                "environment.distance = 100"
            )
        return {"critic": Critic(spec.action.size), "policy": EntityNetwork(0, spec.action.size)}

    def losses(
        self, agent: int, nets: Networks, batch: TeamTransitions, draws: Draws
    ) -> Mapping[str, Tensor]:
        """Compute the critic loss and the policy loss of agent i, as MADDPG does."""
        i, parts = agent, (batch.observation, batch.action, batch.next_observation)
        observation, action, following = (torch.stack([*part], 1) for part in parts)
        others = [k for k in range(len(batch.agents)) if k != i]
        with torch.no_grad():
            following_action = self._next_action(nets, batch, draws)
            target: Any = nets.target_critic[i]
            around = target.others(following[:, others], following_action[:, others])
            next_value = target(following[:, i], following_action[:, i], around)
            expected = batch.reward[i] + self.discount * batch.continues[i] * next_value
        critic: Any = nets.critic[i]
        own = observation[:, i]
        around = critic.others(observation[:, others], action[:, others])
        error = expected - critic(own, action[:, i], around)
        logits = nets.policy[i](own)
        score = critic(own, draws.action("policy_action", i, logits), around.detach())
        penalty = self.logit_penalty * logits.square().mean(-1)
        weight = batch.weight[i]
        return {
            "critic": (weight * error.square()).sum(),
            "policy": (weight * (penalty - score)).sum(),
        }

    @staticmethod
    def _next_action(nets: Networks, batch: TeamTransitions, draws: Draws) -> Tensor:
        """Actions of all target policies, shape (B, M, actions); computed once for a batch."""
        if batch.next_action is None:
            drawn = [
                draws.action("target_action", k, policy(batch.next_observation[k]))
                for k, policy in enumerate(nets.target_policy)
            ]
            batch.next_action = torch.stack(drawn, 1)
        return batch.next_action

    def _minibatches(self, environment: EnvironmentSpec, device: torch.device) -> BatchOf:
        agents, groups = environment.agents, self.groups(environment)

        def load(rows: FloatArray) -> Callable[[UnitIndex, tuple[int, ...]], TeamTransitions]:
            whole = TeamTransitions(rows, agents, groups=groups, device=device)
            return lambda unit, key: whole

        return load
