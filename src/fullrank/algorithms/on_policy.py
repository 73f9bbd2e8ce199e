"""On-policy teams: steps of played episodes by agent, their advantages, and the actor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.trajectories import by_agent
from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Discrete
from fullrank.networks.fused import kernels
from fullrank.networks.heads import Choose, MemorylessActor, make_head
from fullrank.networks.modules import layers_of
from fullrank.replay.episodes import EpisodeLayout

UNAVAILABLE = -1e9
"""Logit of an action that may not be chosen, whose probability is 0."""

LEAST = 1e-8
"""Term added to the deviation of the advantages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Agents that share a policy and a value, and the sizes that fit all of them."""

    agents: tuple[int, ...]
    observation: int
    """Entries of the widest observation; others are padded with zeros."""
    actions: int
    """Most actions of an agent; others have further ones that are never available."""
    identity: bool
    """True if an agent's place among the members is part of its input, one-hot."""

    def width(self, seen: int) -> int:
        """Return the number of inputs of a network that sees so many entries."""
        return seen + self.identity * len(self.agents)

    def inputs(self, seen: Tensor) -> Tensor:
        """Return inputs of a network, from what each member sees, shape (rows, members, size)."""
        if not self.identity:
            return seen
        identity = torch.eye(len(self.agents), device=seen.device)
        return torch.cat([seen, identity.expand(len(seen), -1, -1)], 2)


def members_of(layout: EpisodeLayout, agents: tuple[int, ...], *, identity: bool) -> Members:
    """Return the members of a group; an agent that is alone needs no identity."""
    return Members(
        agents=agents,
        observation=max(layout.observation_sizes[agent] for agent in agents),
        actions=max(layout.action_sizes[agent] for agent in agents),
        identity=identity and len(agents) > 1,
    )


class Steps:
    """Steps of whole episodes, all tensors by row; n agents.

    Args:
        rows: Packed steps, shape (rows, row_size) float32.
        layout: Layout of a row, with derived columns of n entries.
        device: Device of the tensors.

    Attributes:
        observation: Observation of each agent, shape (rows, n, O).
        state: Global state, shape (rows, S).
        available: Mask of the actions that may be chosen, shape (rows, n, A).
        action: Index of each agent's action, shape (rows, n); 0 where it could not act.
        acts: 1 where an agent chose among several actions, else 0, shape (rows, n). An agent
            without a choice has nothing to learn about its policy.
        derived: Derived columns by name, each of shape (rows, n).
    """

    def __init__(self, rows: FloatArray, layout: EpisodeLayout, *, device: torch.device) -> None:
        def tensor(columns: slice) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(rows[:, columns])).to(device)

        def split(columns: slice, sizes: tuple[int, ...]) -> Tensor:
            return torch.from_numpy(by_agent(np.ascontiguousarray(rows[:, columns]), sizes))

        self.observation = split(layout.observation, layout.observation_sizes).to(device)
        self.available = split(layout.available, layout.action_sizes).to(device) > 0
        self.state, taken = tensor(layout.state), tensor(layout.action)
        self.action = taken.clamp_min(0.0).to(torch.int64)
        self.acts = ((taken >= 0) & (self.available.sum(2) > 1)).to(taken.dtype)
        self.derived: Mapping[str, Tensor] = {
            name: tensor(columns) for name, columns in layout.columns.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Minibatch:
    """Facts of the whole minibatch about one group of agents."""

    count: int
    """Number of the group's steps: those of all episodes, times its agents."""
    acted: float
    """Number of them in which the agent had a choice, at least 1."""
    mean: float
    """Mean of the advantages in these, by which a policy learns."""
    deviation: float
    """Their standard deviation."""
    error: float
    """Mean of R - V_old over all steps."""
    spread: float
    """Sum of (R - its mean)^2 over all steps."""

    @staticmethod
    def of(steps: Steps, agents: tuple[int, ...]) -> "Minibatch":
        """Compute the facts, in float64."""

        def column(values: Tensor) -> Array:
            found: Array = values[:, list(agents)].cpu().numpy().astype(np.float64)
            return found

        advantage, value = column(steps.derived["advantage"]), column(steps.derived["value"])
        chosen, returns = advantage[column(steps.acts) > 0], advantage + value
        return Minibatch(
            count=advantage.size,
            acted=max(1.0, float(chosen.size)),
            mean=float(chosen.mean()) if chosen.size else 0.0,
            deviation=(float(chosen.std()) if chosen.size else 0.0) + LEAST,
            error=float(advantage.mean()),
            spread=float(np.square(returns - returns.mean()).sum()),
        )


def masked(logits: Tensor, available: Tensor) -> Tensor:
    """Return logits that give unavailable actions the probability 0."""
    return logits.masked_fill(~available, UNAVAILABLE)


def advantages(
    reward: FloatArray, continues: FloatArray, value: FloatArray, *, discount: float, trace: float
) -> FloatArray:
    """Return the generalised advantages of one episode of L steps [Schulman16].

        A_t = delta_t + discount trace c_t A_(t+1),
        delta_t = r_t + discount c_t V(s_(t+1)) - V(s_t)

    with c_t = 0 where the step reached a terminal state. An episode that a time limit cut off
    continues with the value after its last step.

    Args:
        reward: Rewards r, shape (L, n).
        continues: c, shape (L, 1).
        value: Values V, shape (L + 1, n), the last one after the last step.
        discount: Weight of the next step's value.
        trace: Weight lambda of longer returns.
    """
    goes_on = np.float32(discount) * continues
    error = reward + goes_on * value[1:] - value[:-1]
    later = np.zeros_like(value[0])
    for step in reversed(range(len(error))):
        later = error[step] = error[step] + goes_on[step] * np.float32(trace) * later
    return error


class PolicyActor(MemorylessActor):
    """Role ``policy`` of each group as an ``Actor``, without memory.

    Args:
        agents: Specifications of all agents.
        nets: Networks with the current parameters.
        groups: Members of each group.
        seed: Keys the exploration.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], nets: Networks, groups: Sequence[Members], *, seed: int
    ) -> None:
        sizes = tuple(agent.action.size for agent in agents)
        super().__init__(sizes, seed=seed)
        self._nets, self._groups = nets, groups
        self._observed = tuple(agent.observation_size for agent in agents)
        self._device = next(nets.policy[0].parameters()).device
        # A likelihood is that of one action, also where the environment accepts mixtures.
        specs = (
            replace(agent.action, relaxed=False)
            if isinstance(agent.action, Discrete)
            else agent.action
            for agent in agents
        )
        self._heads = [make_head(spec, noise=0.0, device=self._device) for spec in specs]

    def _act(
        self, observation: FloatArray, available: BoolArray | None, choose: Choose
    ) -> FloatArray:
        seen = torch.from_numpy(by_agent(np.ascontiguousarray(observation), self._observed))
        seen = seen.to(self._device)
        outputs: dict[int, Tensor] = {}
        with kernels.DEFAULT.selected(), torch.no_grad():
            for own in self._groups:
                observed = seen[:, list(own.agents), : own.observation]
                found = self._nets.policy[own.agents[0]](own.inputs(observed))
                outputs |= dict(zip(own.agents, found.unbind(1), strict=True))
        allowed: Sequence[Tensor | None] = [None] * len(self._heads)
        if available is not None:
            mask = torch.from_numpy(available).to(self._device)
            allowed = torch.split(mask, [*self._action_sizes], 1)
        actions = []
        for agent, (head, own_mask) in enumerate(zip(self._heads, allowed, strict=True)):
            output = outputs[agent][:, : self._action_sizes[agent]].t().unsqueeze(0).contiguous()
            if own_mask is not None:
                output = head.mask(output, own_mask.t().unsqueeze(0))
            actions.append(choose(head, output)[0])
        return np.ascontiguousarray(torch.cat(actions).t().cpu().numpy())

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        """Return the agent's policy, layer by layer, with its identity in the first bias."""
        own = next(each for each in self._groups if agent in each.agents)
        layers = layers_of(self._nets.policy[agent])
        if layers is None:
            raise ConfigError("only perceptrons with ReLU between their layers are exported")
        matrices = [
            torch.cat([layer.weight, layer.bias[:, None]], 1).detach().cpu().numpy()
            for layer in layers
        ]
        first, last = matrices[0], matrices[-1]
        bias = first[:, -1:]
        if own.identity:
            bias = bias + first[:, own.observation + own.agents.index(agent), None]
        matrices[0] = np.concatenate([first[:, : self._observed[agent]], bias], axis=1)
        matrices[-1] = last[: self._action_sizes[agent]]
        return tuple(map(np.ascontiguousarray, matrices))


def shrunk(network: nn.Sequential, factor: float) -> nn.Sequential:
    """Scale the weights of a perceptron's last layer, so that its first outputs are alike."""
    with torch.no_grad():
        network[-1].weight.mul_(factor)
    return network
