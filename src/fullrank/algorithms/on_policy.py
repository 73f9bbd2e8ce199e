"""On-policy teams: groups of agents, their steps of whole episodes, values and advantages."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import sqrt
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.trajectories import by_agent
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray, UnitIndex
from fullrank.environments.base import AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.networks.images import Image
from fullrank.networks.normalised import Normalising
from fullrank.networks.parameters import ParameterGroup
from fullrank.replay.episodes import EpisodeLayout, episodes_in

ENTRIES = Entries(
    (
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clipfrac",
        "explained_variance",
        "target_mean",
        "target_deviation",
    ),
    marking="value_loss",
)
"""The statistics that CleanRL's PPO logs, under its names; approx_kl is the mean of rho - 1 -
ln rho, and explained_variance that of R by V_old. The last two are mean and deviation of R."""

Number: TypeAlias = float | Tensor
"""A number of the host, or one on a device."""

LEAST = 1e-8
"""Term added to deviations by which advantages and values are divided."""

NOBODY = torch.zeros(0)
"""Counts of no agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """Agents that share a policy and a value, and the sizes that fit all of them."""

    agents: tuple[int, ...]
    observation: int
    """Entries of the widest observation; others are padded with zeros."""
    actions: int
    """Most actions of an agent; others have further ones that are never available. Where actions
    are vectors, the number of their entries."""
    vector: Continuous | MultiDiscrete | None
    """Range or choices of actions that are vectors, of all members; None where they are indices."""
    identity: bool
    """True if an agent's place among the members is part of its input, one-hot."""
    image: Image | None = None
    """Image that each of them observes, of which ``observation`` features are made; else None."""

    @property
    def box(self) -> Continuous | None:
        """Return the range of continuous actions; None where actions are discrete."""
        return self.vector if isinstance(self.vector, Continuous) else None

    def width(self, seen: int) -> int:
        """Return the number of inputs of a network that sees so many entries."""
        return seen + self.identity * len(self.agents)

    def among(self, values: Tensor) -> Tensor:
        """Return the members' part of what all agents have, shape (rows, n, ...)."""
        return torch.stack([values[:, agent] for agent in self.agents], 1)

    def inputs(self, seen: Tensor) -> Tensor:
        """Return inputs of a network, from what each member sees, shape (rows, members, size)."""
        if not self.identity:
            return seen
        identity = torch.eye(len(self.agents), device=seen.device)
        return torch.cat([seen, identity.expand(len(seen), -1, -1)], 2)


def members_of(
    specs: Sequence[AgentSpec], agents: tuple[int, ...], *, identity: bool
) -> GroupMembers:
    """Return the members of a group; an agent that is alone needs no identity.

    Raises:
        ConfigError: Their actions are of several kinds or ranges.
    """
    own = [specs[agent] for agent in agents]
    vectors = [None if isinstance(spec.action, Discrete) else spec.action for spec in own]
    for spec, vector in zip(own, vectors, strict=True):
        if vector != vectors[0]:
            raise ConfigError(
                f"{own[0].name} and {spec.name} cannot share networks, because their actions are "
                "of different kinds, choices or ranges: choose other groups in algorithm.share"
            )
    return GroupMembers(
        agents=agents,
        observation=max(spec.observation_size for spec in own),
        actions=max(spec.action.size for spec in own),
        vector=vectors[0],
        identity=identity and len(agents) > 1,
    )


def viewers(
    members: tuple[GroupMembers, ...], image: Image | None, *, features: int
) -> tuple[GroupMembers, ...]:
    """Return the members of each group, which observe features of an image if there is one."""
    if image is None:
        return members
    return tuple(replace(own, image=image, observation=features) for own in members)


class Steps:
    """Steps of whole episodes, all tensors by row; n agents.

    Args:
        episodes: Packed steps of each episode, shapes (steps, row_size) float32; or one tensor on
            the device, whose further last column is 1 for steps and 0 for rows of padding, which
            are zero.
        layout: Layout of a row, with derived columns of n entries.
        device: Device of the tensors.
        apart: Networks see each episode by itself, because the bits of a product depend on the
            number of its rows.

    Attributes:
        lengths: Rows of each episode.
        apart: As given.
        available: Mask of the actions that may be chosen, shape (rows, n, A).
        action: Index of each agent's action, shape (rows, n); 0 where it could not act.
        entries: Action of each agent for which it is a vector, shape (rows, n, largest size).
        acted: True where an agent could act, shape (rows, n).
        acts: 1 where an agent chose among several actions, else 0, shape (rows, n). An agent
            without a choice has nothing to learn about its policy.
        earns: 1 where a reward that the agent learns from is paid for the step, shape (rows, n):
            its own, until it leaves the game, or the team's, in all steps.
        derived: Derived columns by name, each of shape (rows, n).
    """

    def __init__(
        self,
        episodes: Sequence[FloatArray] | Tensor,
        layout: EpisodeLayout,
        *,
        device: torch.device,
        apart: bool = False,
    ) -> None:
        whole = isinstance(episodes, Tensor)
        self.lengths = [len(episodes)] if whole else [len(episode) for episode in episodes]
        self.apart = apart
        self._episodes, self._layout, self._device = episodes, layout, device
        self.available = self._split(layout.available, layout.action_sizes) > 0
        taken = self._tensor(layout.action)
        self.action = taken.clamp_min(0.0).to(torch.int64)
        vectors = layout.vectors or (0,) * layout.agents
        self.entries = self._split(layout.entries, vectors)
        offered, enough = self.available.sum(2), [1 if size else 2 for size in vectors]
        chosen = zip(offered.unbind(1), enough, strict=True)
        several = torch.stack([own >= least for own, least in chosen], 1)
        self.acted = taken >= 0
        self.acts = (self.acted & several).to(taken.dtype)
        self.earns = torch.ones_like(taken)
        if layout.own_rewards:
            self.earns = self._tensor(layout.earns)
        elif whole:
            self.earns = self._tensor(slice(layout.row_size, None)).expand_as(taken)
        self.derived: Mapping[str, Tensor] = {
            name: self._tensor(columns) for name, columns in layout.columns.items()
        }

    def _tensor(self, columns: slice) -> Tensor:
        if isinstance(self._episodes, Tensor):
            return self._episodes[:, columns].contiguous()
        rows = np.concatenate([episode[:, columns] for episode in self._episodes])
        return torch.from_numpy(rows).to(self._device)

    def _split(self, columns: slice, sizes: tuple[int, ...]) -> Tensor:
        return by_agent(self._tensor(columns), sizes)

    @cached_property
    def observation(self) -> Tensor:
        """Observation of each agent, shape (rows, n, O)."""
        return self._split(self._layout.observation, self._layout.observation_sizes)

    @cached_property
    def state(self) -> Tensor:
        """Global state, shape (rows, S)."""
        return self._tensor(self._layout.state)

    def state_counts(self, whole: "WholeMinibatch") -> tuple[Tensor, Tensor]:
        """Return where entries of the state count, and how often in the whole minibatch.

        Those of a joint observation count where their agent had a choice, others always.

        Returns:
            1 where they count, else 0, shape (rows, S), and numbers, shape (S,); or one for all.
        """
        if self._layout.state_size:
            return torch.ones_like(self.acts[:, :1]), torch.tensor([whole.rows], dtype=torch.float)
        acts, choices = self.acts, whole.choices
        sizes = torch.tensor(self._layout.observation_sizes)
        if self._layout.clock:
            sizes = torch.cat([sizes, torch.ones(1, dtype=sizes.dtype)])
            acts = torch.cat([acts, torch.ones_like(acts[:, :1])], 1)
            choices = torch.cat([choices, choices.new_tensor([whole.rows])])
        return acts.repeat_interleave(sizes.to(acts.device), 1), choices.repeat_interleave(sizes)

    def seeing(self, observation: Tensor, state: Tensor) -> "Steps":
        """Return these steps with other observations, shape (rows, n, F), and states."""
        steps = copy(self)
        steps.observation, steps.state = observation, state
        return steps


class ValueScale(nn.Module):
    """Moving averages of what a value is to be, R: their weight, of R and of R^2.

    A value is the mean of R plus its deviation times the outputs of its network, so that these are
    of one magnitude for all rewards. The averages move with each update over a minibatch, without
    a gradient; divided by their weight they are not biased to where they began, as in ValueNorm of
    [Yu22].
    """

    DECAY = 0.999
    """Weight of the averages of before."""
    SHARE = 2.0**-10
    """Least deviation, as a share of the mean's magnitude. The averages are float32, and for
    smaller deviations E[R^2] - E[R]^2 is a difference of their roundings, anything from 0 on."""

    def __init__(self) -> None:
        super().__init__()
        self.averages = nn.Parameter(torch.zeros(3))

    @staticmethod
    def moved(averages: Array, mean: float, deviation: float) -> Array:
        """Return the averages after a minibatch whose R have this mean and deviation."""
        own = np.array([1.0, mean, mean * mean + deviation * deviation])
        after: Array = ValueScale.DECAY * averages + (1.0 - ValueScale.DECAY) * own
        return after

    @staticmethod
    def of(averages: Array) -> tuple[float, float]:
        """Return mean and deviation; 0 and 1 before the first minibatch."""
        weight, mean, square = averages.tolist()
        if weight <= 0.0:
            return 0.0, 1.0
        mean /= weight
        found = sqrt(max(square / weight - mean**2, 0.0))
        return mean, max(found, ValueScale.SHARE * abs(mean)) + LEAST


def rescale(group: ParameterGroup, statistics: Mapping[str, float]) -> None:
    """Move the averages of a group's values along the statistics of an update."""
    row = group.rows.online[0, group.networks["scale"]]
    found = statistics["target_mean"], statistics["target_deviation"]
    averages = ValueScale.moved(row.cpu().numpy().astype(np.float64), *found)
    row.copy_(torch.from_numpy(averages.astype(np.float32)))


def averaged_columns(
    nets: Networks, members: Sequence[GroupMembers], group: ParameterGroup
) -> list[slice]:
    """Return the columns of a group's averages of inputs, which are the first ones of networks."""
    first = members[group.agents[0]].agents[0]
    return [
        slice(columns.start, columns.start + network.averages.numel())
        for role, columns in group.networks.items()
        if isinstance(network := getattr(nets, role)[first], Normalising)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeMinibatch:
    """Facts of the whole minibatch about one group of agents."""

    count: Number
    """Number of the group's steps in which the agent earns, at least 1."""
    acted: Number
    """Number of steps in which the agent had a choice, at least 1."""
    mean: Number
    """Mean of the advantages in these, by which a policy learns."""
    deviation: Number
    """Their standard deviation."""
    error: Number
    """Mean of R - V_old over all steps."""
    target_mean: Number
    """Mean of R over all steps."""
    target_deviation: Number
    """Standard deviation of R over all steps."""
    scale: tuple[Number, Number] | None = None
    """Mean and deviation of what a value is to be after the minibatch; None: of the parameters."""
    rows: int = 0
    """Steps of all episodes."""
    choices: Tensor = NOBODY
    """Number of them in which each agent of the run had a choice, shape (n,)."""

    def shares(self, earns: Tensor, missed: Tensor) -> Statistics:
        """Return a unit's share of what tells of R.

        Args:
            earns: 1 where the agent earns, else 0.
            missed: Squared differences of R - V_old from their mean, 0 where it does not.
        """
        share, variance = int(earns.sum()) / self.count, self.target_deviation**2 or 1.0
        return {
            "explained_variance": share - missed.sum() / self.count / variance,
            "target_mean": share * self.target_mean,
            "target_deviation": share * self.target_deviation,
        }

    @staticmethod
    def of_steps(steps: Steps, agents: tuple[int, ...]) -> "WholeMinibatch":
        """Compute the facts of the steps of some agents."""
        columns = steps.derived["advantage"], steps.derived["value"], steps.acts, steps.earns
        found = WholeMinibatch.of(*(each[:, list(agents)] for each in columns))
        return replace(found, rows=len(steps.acts), choices=steps.acts.sum(0).cpu())

    @staticmethod
    def of(advantages: Tensor, values: Tensor, acts: Tensor, earns: Tensor) -> "WholeMinibatch":
        """Compute the facts, in float64, of A, V_old, and where an agent had a choice or earned."""
        parts = (part.cpu().numpy().astype(np.float64) for part in (advantages, values))
        advantage, value = parts
        chosen, paid = (advantage[where.cpu().numpy() > 0] for where in (acts, earns))
        returns = paid + value[earns.cpu().numpy() > 0]
        paid, returns = (part if part.size else np.zeros(1) for part in (paid, returns))
        return WholeMinibatch(
            count=paid.size,
            acted=max(1.0, float(chosen.size)),
            mean=float(chosen.mean()) if chosen.size else 0.0,
            deviation=(float(chosen.std()) if chosen.size else 0.0) + LEAST,
            error=float(paid.mean()),
            target_mean=float(returns.mean()),
            target_deviation=float(returns.std()),
        )


def minibatch(
    parts: Sequence[range],
    problem: Problem,
    layout: EpisodeLayout,
    rows: FloatArray,
    *,
    device: torch.device,
) -> Callable[[UnitIndex, tuple[int, ...]], tuple[Steps, WholeMinibatch] | None]:
    """Return the steps of each unit, with facts of the whole minibatch about its group.

    Args:
        parts: Numbers of the episodes of each micro-batch.
        problem: Units.
        layout: Layout of a row.
        rows: Packed rows of the minibatch's episodes.
        device: Device of the tensors.
    """
    episodes = [rows[place][:-1] for place in episodes_in(rows, layout.length)]
    whole = cache(partial(WholeMinibatch.of_steps, Steps(episodes, layout, device=device)))

    @cache
    def steps_of(part: int) -> Steps | None:
        own = episodes[parts[part].start : parts[part].stop]
        return Steps(own, layout, device=device) if own else None

    def batch_of(unit: UnitIndex, key: tuple[int, ...]) -> tuple[Steps, WholeMinibatch] | None:
        agents, part = problem.units[unit]
        steps = steps_of(part)
        return None if steps is None else (steps, whole(agents))

    return batch_of


def advantages(
    reward: FloatArray,
    continues: FloatArray,
    earns: FloatArray,
    value: FloatArray,
    *,
    discount: float,
    trace: float,
) -> FloatArray:
    """Return the generalised advantages of K episodes of L steps [Schulman16].

        A_t = delta_t + discount trace c_t e_(t+1) A_(t+1),
        delta_t = r_t + discount c_t V(s_(t+1)) - V(s_t)

    with c_t = 0 where nothing is expected after the step, and e_t = 0 where the agent is out of the
    game. Where e_t = 0, A_t has no meaning.

    Args:
        reward: Rewards r, shape (L, K, n).
        continues: c, shape (L, K, 1 or n).
        earns: e_1 to e_L, the last of which is not used, of the same shape.
        value: Values V, shape (L + 1, K, n), the last one after the last step.
        discount: Weight of the next step's value.
        trace: Weight lambda of longer returns.
    """
    goes_on = np.float32(discount) * continues
    error = reward + goes_on * value[1:] - value[:-1]
    later = np.zeros_like(value[0])
    for step in reversed(range(len(error))):
        later = error[step] = error[step] + goes_on[step] * np.float32(trace) * earns[step] * later
    return error


def annealed(rate: float, last: int) -> Callable[[int], float] | None:
    """Return the learning rate after a number of committed iterations; None if it is constant.

    Args:
        rate: The initial one.
        last: Number of iterations over which it falls linearly to 0; 0: it is constant.
    """
    return (lambda iterations: rate * (1.0 - min(1.0, iterations / last))) if last else None
