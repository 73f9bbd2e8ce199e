"""On-policy teams of any losses: settings, units and roles over whole episodes.

Each group of agents that share networks has a policy pi(a | o) and a network that judges it. A
collection is played with the parameters theta_old; where it is played, each step is given a value
V_old, and the sum A of discounted temporal differences from it. The collection is then passed over
in minibatches, each of which is an update along the gradient of the losses.

A unit is a group and one of M micro-batches: ceil(B / M) consecutive episodes of the minibatch. Its
update is the gradient of their share of the losses, scaled by 2^(-6 - e) with e the exponent of the
group's sums, and clamped to 1/2; an iteration recovers the sum over the micro-batches of each
group, which is gradient coding [Tandon17]. The controller undoes the scale, clips the norm of each
group's sum and steps Adam. The unit's share of the statistics follows its gradient.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.autograd import AutogradGradients
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import (
    Networks,
    Sharing,
    groups_of,
    initial_parameters,
    problem_of,
)
from fullrank.algorithms.on_policy import (
    GroupMembers,
    Steps,
    WholeMinibatch,
    advantages,
    annealed,
    averaged_columns,
    members_of,
    minibatch,
)
from fullrank.algorithms.policies import PolicyActor
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.ranges import check_ranges
from fullrank.algorithms.roles import Algorithm, Gradients
from fullrank.algorithms.sum_optimiser import SumOptimiser
from fullrank.algorithms.trajectories import SCALE
from fullrank.algorithms.updates import Entries, Statistics, check_micro_batches
from fullrank.codes.targets import LIMIT
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Discrete
from fullrank.networks.adam import Adam
from fullrank.networks.fused import kernels
from fullrank.networks.parameters import ParameterGroup
from fullrank.replay.episodes import EpisodeLayout, episodes_in

Moved = Callable[[ParameterGroup, Mapping[str, float]], None]
"""Moves what no gradient moves, given a group and its statistics."""

Batch = tuple[Steps, WholeMinibatch]
"""A unit's steps, with facts of the whole minibatch about its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicy(ABC):
    """Hyperparameters and roles of on-policy teams; the defaults follow [Yu22]."""

    batch_size: int = 4
    """B, number of episodes of a minibatch; it divides those of a collection, which has one of each
    of the ``environment.copies``."""
    micro_batches: int = 4
    """M, number of units of each group, into which the B episodes are split; independent of the
    learners."""
    hidden: int = 64
    """Width of the two hidden layers of a network, or of the hidden layer and of the recurrent
    state."""
    recurrent: bool = False
    """Give policies and values a recurrent state, their memory of an episode's earlier steps."""
    learning_rate: float = 5e-4
    """Learning rate of Adam."""
    anneal_iterations: int = 0
    """Number of iterations over which the learning rate falls linearly to 0; 0: it is constant."""
    epsilon: float = 1e-5
    """Term added to the root of the mean square in Adam."""
    clip_norm: float = 10.0
    """L2 norm to which the gradient of each group's networks is clipped."""
    discount: float = 0.99
    """Discount factor, gamma."""
    trace: float = 0.95
    """Weight lambda of longer returns in the targets of values."""
    time_limit_bootstrap: bool = False
    """Let an episode, or an agent, that a time limit cut off go on with the value after its last
    step; false: nothing is expected after it, as by default in the program of [Yu22]."""
    entropy_weight: float = 0.01
    """Weight of the policy's entropy, which is to stay large."""
    identity: bool = True
    """Give an agent that shares networks its place among those that do as input, one-hot."""
    reward: Literal["own", "team"] = "own"
    """Reward from which an agent learns: ``own``, that of the agent; ``team``, that of all agents
    together, who are one side then."""
    share: Sharing = "all"
    """Agents that share a policy and a value: ``all``; ``side``, those of a side; ``none``; or a
    table of groups with the names of their agents. Smaller observations and fewer actions are
    padded."""

    whole_episodes: ClassVar[bool] = True
    """Minibatches are of whole episodes, which determines the default sizes of a run."""
    entries: ClassVar[Entries]
    """Statistics that follow the gradient."""
    read: ClassVar[tuple[str, ...]]
    """Roles of the networks that losses read."""
    prepared_by: ClassVar[tuple[str, ...]]
    """Roles of the networks beside the policy from which ``prepare`` derives columns."""
    derived: ClassVar[tuple[str, ...]] = ("value", "advantage")
    """Names of the columns that are derived, of an entry for each agent."""
    vectors: ClassVar[bool] = False
    """Losses read actions that are vectors, continuous or several choices at once."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if min(self.batch_size, self.hidden) < 1:
            raise ConfigError("algorithm.batch_size and hidden must be at least 1")
        check_micro_batches(self.micro_batches, batch_size=self.batch_size)

    @abstractmethod
    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the networks of an agent's group by role, among them ``policy``."""

    @abstractmethod
    def losses(
        self, own: GroupMembers, nets: Networks, steps: Steps, whole: WholeMinibatch
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of the loss of a group's networks, and of the statistics.

        Args:
            own: Members of the group.
            nets: All networks.
            steps: The unit's steps.
            whole: Facts of the whole minibatch.
        """

    @abstractmethod
    def judged(self, own: GroupMembers, nets: Networks, steps: Steps) -> Mapping[str, Tensor]:
        """Compute derived columns but for ``advantage``, shape (rows, members) each.

        Args:
            own: Members of the group.
            nets: The networks that played.
            steps: All rows of an episode, also the last one.
        """

    @property
    def moved(self) -> Moved | None:
        """Return what moves entries without a gradient, by default nothing."""
        return None

    @property
    def target_updates(self) -> int:
        """Return the number of updates between two copies to the target networks."""
        return 1

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step, with what is derived of it where it is played."""
        agents, own = environment.agents, self.reward == "own"
        actions = tuple(agent.action.size for agent in agents)
        vectors = tuple(0 if isinstance(a.action, Discrete) else a.action.size for a in agents)
        return EpisodeLayout(
            observation_sizes=tuple(agent.observation_size for agent in agents),
            action_sizes=actions,
            state_size=environment.state_size,
            own_rewards=own,
            vectors=vectors if any(vectors) else (),
            derived=tuple((name, len(agents)) for name in self.derived),
        )

    def members(self, environment: EnvironmentSpec) -> tuple[GroupMembers, ...]:
        """Return the members of each group.

        Raises:
            ConfigError: Actions of a group are of several kinds, or vectors of which the losses
                know nothing, or groups are not of all agents.
        """
        for spec in environment.agents:
            if not (self.vectors or isinstance(spec.action, Discrete)):
                raise ConfigError(
                    f"{spec.name} has {spec.action.kind}, and {type(self).__name__} learns single "
                    "discrete actions; use mappo or ippo"
                )
        return tuple(
            members_of(environment.agents, agents, identity=self.identity)
            for agents in groups_of(self.share, environment.agents)
        )

    def group_of(self, environment: EnvironmentSpec, agent: int) -> GroupMembers:
        """Return the members of an agent's group."""
        return next(own for own in self.members(environment) if agent in own.agents)

    def prepare(
        self,
        rows: FloatArray,
        nets: Networks,
        groups: tuple[GroupMembers, ...],
        layout: EpisodeLayout,
    ) -> None:
        """Fill the derived columns of episodes, played with ``nets``.

        Their bits do not depend on the other episodes: networks see one at a time, and so does the
        likelihood of actions that are vectors, as functions of many numbers may round by place.
        Images are copied one episode at a time.
        """
        places = episodes_in(rows, layout.length)
        alone = bool(layout.vectors) or any(own.image for own in groups)
        for together in [[place] for place in places] if alone else [places]:
            self.prepare_together(rows[together[0].start : together[-1].stop], nets, groups, layout)

    def prepare_together(
        self,
        rows: FloatArray,
        nets: Networks,
        groups: tuple[GroupMembers, ...],
        layout: EpisodeLayout,
    ) -> None:
        """Fill the derived columns of episodes that are loaded together; see ``prepare``."""
        columns, places = layout.columns, episodes_in(rows, layout.length)
        device, episodes = next(nets.policy[0].parameters()).device, [rows[own] for own in places]
        steps = Steps(episodes, layout, device=device, apart=True)
        found = {
            name: np.empty((len(rows), layout.agents), np.float32)
            for name in self.derived
            if name != "advantage"
        }
        with kernels.DEFAULT.selected(), torch.no_grad():
            for own in groups:
                for name, values in self.judged(own, nets, steps).items():
                    found[name][:, own.agents] = values.cpu().numpy()
        lengths = np.array(steps.lengths)
        starts = np.cumsum(lengths) - lengths
        for length in sorted(set(steps.lengths)):
            index = starts[lengths == length] + np.arange(length)[:, None]
            played = index[:-1]
            for name, column in found.items():
                rows[played, columns[name]] = column[played]
            reward, ends = (rows[played, own, None] for own in (layout.reward, layout.terminated))
            earns = np.ones_like(ends)
            if layout.own_rewards:
                reward, ends = rows[played, layout.rewards], rows[played, layout.ends]
                earns = rows[index[1:], layout.earns]
            if not self.time_limit_bootstrap:
                ends[earns == 0.0] = ends[-1] = 1.0
            rows[played, columns["advantage"]] = advantages(
                reward,
                1.0 - ends,
                earns,
                found["value"][index],
                discount=self.discount,
                trace=self.trace,
            )

    def sealed(
        self,
        gradient: FloatArray,
        statistics: Statistics,
        moments: Mapping[str, FloatArray],
        *,
        own: GroupMembers,
        nets: Networks,
    ) -> FloatArray:
        """Return the update of a unit: a scaled gradient, moments of inputs, and statistics."""
        first = own.agents[0]
        scaled = np.clip(gradient * np.float32(SCALE * nets.factor_of(first)), -LIMIT, LIMIT)
        update = self.entries.after(scaled, statistics)
        columns = nets.group_of(first).networks
        for role, found in moments.items():
            update[columns[role].start :][: len(found)] = found
        return update

    def moments(
        self, own: GroupMembers, nets: Networks, steps: Steps, whole: WholeMinibatch
    ) -> Mapping[str, FloatArray]:
        """Return a unit's share of the moments of normalised inputs, by role; by default none."""
        return {}

    @property
    def parts(self) -> tuple[range, ...]:
        """Return the numbers of each micro-batch's episodes; the last may have fewer, or none."""
        every, width = range(self.batch_size), -(-self.batch_size // self.micro_batches)
        return tuple(every[part * width :][:width] for part in range(self.micro_batches))

    def data_mode(self) -> DataMode:
        """Return the origin of the minibatch: each episode of a collection once."""
        return DataMode(batch_size=self.batch_size, epochs=1)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes without allocating parameters.

        Raises:
            ConfigError: Agents of a group differ, or the groups are not of all agents.
        """
        layout = self.layout(environment)
        problem = problem_of(
            tuple(own.agents for own in self.members(environment)),
            partial(self.networks, environment),
            reads=lambda agent: [(role, agent) for role in self.read],
            micro_batches=self.parts,
            entries=self.entries.size,
            row_size=layout.row_size,
            data=self.data_mode(),
            episodes=layout,
        )
        by = tuple(section.id for section in problem.sections if section.role in self.prepared_by)
        return replace(problem, prepared_by=by, items=None)

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles."""
        where, members = device_of(device), self.members(environment)
        networks, layout = partial(self.networks, environment), self.layout(environment)
        problem, groups = self.problem(environment), tuple(own.agents for own in members)
        parameters = initial_parameters(networks, groups, seed=seed, device=where)
        nets = Networks(networks, groups, parameters)
        return Algorithm(
            problem=problem,
            parameters=parameters,
            gradients=self.fused(problem, members, nets)
            or self.readable(problem, members, nets, environment.agents),
            optimiser=SumOptimiser(
                parameters,
                Adam(learning_rate=self.learning_rate, target_rate=0.0, epsilon=self.epsilon),
                entries=self.entries,
                scale=SCALE,
                clip_norm=self.clip_norm,
                target_every=self.target_updates,
                rate=annealed(self.learning_rate, self.anneal_iterations),
                moved=self.moved,
                averaged=partial(averaged_columns, nets, members),
            ),
            actor=PolicyActor(
                environment.agents,
                nets,
                members,
                state=self.hidden if self.recurrent else 0,
                seed=seed,
            ),
            prepare=lambda rows: self.prepare(rows, nets, members, layout),
        )

    def readable(
        self,
        problem: Problem,
        members: Sequence[GroupMembers],
        nets: Networks,
        agents: Sequence[AgentSpec],
    ) -> AutogradGradients:
        """Build the learner's role by autograd of the losses."""
        groups, layout = {own.agents: own for own in members}, problem.episodes
        device = next(nets.policy[0].parameters()).device
        assert layout is not None  # on-policy teams learn from episodes

        def seal(
            gradient: FloatArray, statistics: Statistics, batch: Batch, agents: tuple[int, ...]
        ) -> FloatArray:
            own = groups[agents]
            moments = self.moments(own, nets, *batch)
            return self.sealed(gradient, statistics, moments, own=own, nets=nets)

        return AutogradGradients(
            lambda agents, nets, batch, draws: self.losses(groups[agents], nets, *batch),
            nets,
            problem,
            batch_of=partial(minibatch, self.parts, problem, layout, device=device),
            seal=seal,
            agents=agents,
            device=device,
        )

    def fused(
        self, problem: Problem, members: Sequence[GroupMembers], nets: Networks
    ) -> Gradients | None:
        """Build the learner's role from hand-written passes; None, the default, for autograd."""
        return None
