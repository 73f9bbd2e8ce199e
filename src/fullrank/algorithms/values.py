"""Value-based teams: shared networks of action values, learned from micro-batches of episodes.

All agents share one recurrent network of action values, or ``share`` names groups that have one
each; they learn from one loss, and so in one unit. A subclass says how the values of the
agents' chosen actions make the value that temporal differences are taken of. With T the number of
steps of all B episodes of the sample, the loss is

    L = 1 / T sum of (G_t - Q_t)^2 over episodes and steps t

    G_t = r_t + discount (1 - terminated_t) [(1 - trace) Q'_(t+1) + trace G_(t+1)]

where Q_t mixes the values of the chosen actions, and Q' mixes the target network's values of the
best available actions, best by the online network if ``double`` is set [vanHasselt16]. G continues
with Q' where an episode was cut off by a time limit. ``trace`` = 0 gives one-step targets.

Unit i is micro-batch i of M: ceil(B / M) consecutive episodes of the sample. Its update is the
gradient of its episodes' share of L, scaled by 2^(-6 - e), with e the exponent of the sums, and
clamped to 1/2, the bound of exact encoding; an iteration recovers the sum of all updates, which is
gradient coding [Tandon17]. The controller undoes the scale, clips the global norm of the sum and
steps the optimiser. The unit's share of the statistics that PyMARL logs follows its gradient. M is
configuration: bits depend on it, but not on the number of learners.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.autograd import AutogradGradients
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.fused_values import FusedValueGradients, MakeMixing
from fullrank.algorithms.groups import (
    Groups,
    Networks,
    Sharing,
    groups_of,
    initial_parameters,
    problem_of,
)
from fullrank.algorithms.optimiser import SumOptimiser
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.roles import Algorithm
from fullrank.algorithms.trajectories import (
    ENTRIES,
    SCALE,
    Trajectories,
    ValueActor,
    best_values,
    chosen_values,
    shares_of,
)
from fullrank.algorithms.updates import Statistics
from fullrank.codes.targets import LIMIT
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments.base import Discrete
from fullrank.networks.adam import Adam, RMSprop
from fullrank.networks.value_networks import FeedForwardAgent, GroupedAgents, RecurrentAgent
from fullrank.replay.episodes import EpisodeLayout, episodes_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLearner(ABC):
    """Hyperparameters and roles of value-based teams; the defaults are those of PyMARL."""

    batch_size: int = 32
    """B, number of episodes over whose steps an update averages."""
    buffer_size: int = 5000
    """Number of newest episodes from which B are drawn."""
    micro_batches: int = 4
    """M, number of units into which the B episodes are split; independent of the learners."""
    hidden: int = 64
    """Width of the hidden layer and of the recurrent state of the agents' network."""
    recurrent: bool = True
    """Give the agents' network a recurrent state, its memory of an episode's earlier steps."""
    optimiser: Literal["rmsprop", "adam"] = "rmsprop"
    """Update rule of the controller."""
    learning_rate: float = 5e-4
    """Learning rate of the optimiser."""
    smoothing: float = 0.99
    """Weight of the old mean square in RMSprop, alpha."""
    epsilon: float = 1e-5
    """Term added to the root of the mean square in RMSprop."""
    clip_norm: float = 10.0
    """L2 norm to which the whole gradient is clipped."""
    discount: float = 0.99
    """Discount factor, gamma."""
    target_every: int = 25
    """Number of updates between two copies of the parameters to the target networks; 25 updates
    with 8 new episodes each are PyMARL's 200 episodes."""
    double: bool = True
    """Choose the next actions by the online network (double Q-learning)."""
    trace: float = 0.0
    """Weight lambda of longer returns in the targets, TD(lambda)."""
    exploration_start: float = 1.0
    """Initial probability epsilon of a random action."""
    exploration_end: float = 0.05
    """Final probability epsilon of a random action."""
    exploration_steps: int = 50_000
    """Number of environment steps over which epsilon falls linearly."""
    last_action: bool = True
    """Give an agent its last action as input."""
    identity: bool = True
    """Give an agent its index as input, one-hot."""
    share: Sharing = "all"
    """Agents that share a network of action values: ``all``; ``side``, those of a side; ``none``;
    or a table of groups with the names of their agents. Several networks are computed by
    autograd."""

    def __post_init__(self) -> None:
        if min(self.batch_size, self.buffer_size, self.hidden, self.target_every) < 1:
            raise ConfigError(
                "algorithm.batch_size, buffer_size, hidden and target_every must be at least 1"
            )
        if not 1 <= self.micro_batches <= self.batch_size:
            raise ConfigError(
                f"algorithm.micro_batches = {self.micro_batches} must lie between 1 and "
                f"algorithm.batch_size = {self.batch_size}"
            )
        if self.clip_norm <= 0:
            raise ConfigError("algorithm.clip_norm must be above 0")

    @abstractmethod
    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        """Build the networks by role: ``agent``, and those that ``mix`` uses."""

    @abstractmethod
    def mix(self, nets: Networks, values: Tensor, state: Tensor, *, target: bool) -> Tensor:
        """Return the values of which temporal differences are taken.

        Args:
            nets: All networks, each a list of one: ``nets.agent[0]``, ``nets.target_agent[0]``.
            values: Values of the agents' actions, shape (steps, K, n).
            state: Global state, shape (steps, K, S).
            target: True to use target networks.

        Returns:
            Shape (steps, K, values): one value of the team, or one for each agent.
        """

    def agent(self, environment: EnvironmentSpec) -> nn.Module:
        """Build the network of action values that all agents share, or one for each group."""
        groups = self.groups(environment)
        built = [self.network(environment) for _ in groups]
        return built[0] if len(built) == 1 else GroupedAgents(built, groups)

    def network(self, environment: EnvironmentSpec) -> RecurrentAgent | FeedForwardAgent:
        """Build a network of action values, which any agent may use."""
        layout = episode_layout(environment)
        inputs = max(layout.observation_sizes)
        inputs += self.last_action * max(layout.action_sizes) + self.identity * layout.agents
        network = RecurrentAgent if self.recurrent else FeedForwardAgent
        return network(inputs, self.hidden, max(layout.action_sizes))

    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of the loss, one for all networks, and of the statistics.

        Args:
            nets: All networks.
            batch: The unit's episodes.
        """
        values = self.values(nets.agent[0], batch)
        with torch.no_grad():
            target_values = self.values(nets.target_agent[0], batch)[1:]
            judge = values[1:] if self.double else target_values
            next_values = best_values(target_values, judge, batch.available[1:])
            next_value = self.mix(nets, next_values, batch.state[1:], target=True)
            expected = self.returns(next_value, batch)
        chosen = chosen_values(values[:-1], batch.action)
        value = self.mix(nets, chosen, batch.state[:-1], target=False)
        error = (expected - value) * batch.valid[..., None]
        parts = (part.detach().cpu().numpy() for part in (value, expected, batch.valid))
        shares = shares_of(*parts, steps=batch.steps, agents=batch.action.shape[2])
        loss = error.square().sum() / (batch.steps * value.shape[2])
        return dict.fromkeys(nets.parameters.groups[0].networks, loss), shares

    def values(self, network: nn.Module, batch: Trajectories) -> Tensor:
        """Compute the values of all actions, shape (L + 1, K, n, A)."""
        steps, episodes, agents, _ = batch.observation.shape
        parts = [batch.observation]
        if self.last_action:
            parts.append(batch.last_action)
        if self.identity:
            identity = torch.eye(agents, device=batch.observation.device)
            parts.append(identity.expand(steps, episodes, agents, agents))
        inputs = torch.cat(parts, 3).flatten(1, 2)
        values, _ = network(inputs, inputs.new_zeros(episodes * agents, self.hidden))
        return torch.unflatten(values, 1, (episodes, agents))

    def returns(self, next_value: Tensor, batch: Trajectories) -> Tensor:
        """Compute G, shape (L, K, values), from Q' of the next states, of the same shape."""
        reward, continues = batch.reward[..., None], batch.continues[..., None]
        if not self.trace:
            return reward + self.discount * continues * next_value
        goes_on = torch.nn.functional.pad(batch.valid, (0, 0, 0, 1))[1:, :, None] > 0
        returns, later = torch.empty_like(next_value), next_value[-1]
        for step in reversed(range(len(next_value))):
            later = torch.where(goes_on[step], later, next_value[step])
            mean = (1.0 - self.trace) * next_value[step] + self.trace * later
            later = returns[step] = reward[step] + self.discount * continues[step] * mean
        return returns

    @property
    def parts(self) -> tuple[range, ...]:
        """Return the numbers of each unit's episodes; the last units may have fewer, or none."""
        every, width = range(self.batch_size), -(-self.batch_size // self.micro_batches)
        return tuple(every[unit * width :][:width] for unit in range(self.micro_batches))

    def exploration(self, env_steps: int) -> float:
        """Return the probability of a random action after a number of environment steps."""
        steps = self.exploration_steps
        done = min(1.0, env_steps / steps) if steps else 1.0
        return self.exploration_start + done * (self.exploration_end - self.exploration_start)

    def data_mode(self) -> DataMode:
        """Return the origin of the minibatch: B of the newest episodes in replay."""
        return DataMode(batch_size=self.batch_size, newest_episodes=self.buffer_size)

    def groups(self, environment: EnvironmentSpec) -> Groups:
        """Return the agents that share a network, by default those that ``share`` names."""
        return groups_of(self.share, environment.agents)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes without allocating parameters."""
        layout = episode_layout(environment)
        return problem_of(
            groups_of("all", environment.agents),
            lambda agent: self.networks(environment),
            micro_batches=self.parts,
            entries=ENTRIES.size,
            row_size=layout.row_size,
            data=self.data_mode(),
            episodes=layout,
        )

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles."""
        where = device_of(device)
        nets = self.initial(environment, seed=seed, device=where)
        return Algorithm(
            problem=self.problem(environment),
            parameters=nets.parameters,
            gradients=self.fused(environment, nets, where)
            or self.readable(environment, nets, where),
            optimiser=SumOptimiser(
                nets.parameters,
                rule_of(self),
                entries=ENTRIES,
                scale=SCALE,
                clip_norm=self.clip_norm,
                target_every=self.target_every,
            ),
            actor=ValueActor(self, nets, episode_layout(environment), seed=seed),
        )

    def initial(self, environment: EnvironmentSpec, *, seed: int, device: torch.device) -> Networks:
        """Make all networks with their initial parameters."""
        groups = groups_of("all", environment.agents)
        parameters = initial_parameters(
            lambda agent: self.networks(environment), groups, seed=seed, device=device
        )
        return Networks(lambda agent: self.networks(environment), groups, parameters)

    def fused(
        self, environment: EnvironmentSpec, nets: Networks, device: torch.device
    ) -> FusedValueGradients | None:
        """Build the learner's role from hand-written passes; None where there are none."""
        mixing = self.mixing_passes(nets, device)
        if mixing is None or type(nets.agent[0]) is not RecurrentAgent:
            return None
        layout = episode_layout(environment)
        return FusedValueGradients(self, mixing, nets, layout, device=device)

    def readable(
        self, environment: EnvironmentSpec, nets: Networks, device: torch.device
    ) -> AutogradGradients:
        """Build the learner's role from the loss, by autograd."""
        layout = episode_layout(environment)

        def load(rows: FloatArray) -> Callable[[UnitIndex, tuple[int, ...]], Trajectories | None]:
            places = episodes_in(rows, layout.length)

            def batch_of(unit: UnitIndex, key: tuple[int, ...]) -> Trajectories | None:
                part, steps = self.parts[unit], len(rows) - len(places)
                own = [rows[place] for place in places[part.start : part.stop]]
                return Trajectories(own, layout, device=device, steps=steps) if own else None

            return batch_of

        return AutogradGradients(
            lambda agents, nets, batch, draws: self.losses(nets, batch),
            nets,
            self.problem(environment),
            batch_of=load,
            seal=lambda gradient, statistics, batch, agents: ENTRIES.after(
                np.clip(gradient * np.float32(SCALE * nets.parameters.factor(0)), -LIMIT, LIMIT),
                statistics,
            ),
            agents=environment.agents,
            seed=0,
            device=device,
        )

    def mixing_passes(self, nets: Networks, device: torch.device) -> MakeMixing | None:
        """Return the maker of hand-written passes of ``mix``; None, the default, for autograd."""
        return None


def episode_layout(environment: EnvironmentSpec) -> EpisodeLayout:
    """Return the layout of the steps of the environment's episodes.

    Raises:
        ConfigError: An agent's actions are continuous.
    """
    for agent in environment.agents:
        if not isinstance(agent.action, Discrete):
            raise ConfigError(
                f"{agent.name} has continuous actions, and value-based algorithms choose among "
                "discrete ones; use maddpg"
            )
    return EpisodeLayout(
        observation_sizes=tuple(agent.observation_size for agent in environment.agents),
        action_sizes=tuple(agent.action.size for agent in environment.agents),
        state_size=environment.state_size,
    )


def rule_of(learner: ValueLearner) -> Adam | RMSprop:
    """Build the update rule of a learner's parameters."""
    rate = learner.learning_rate
    if learner.optimiser == "adam":
        return Adam(learning_rate=rate, target_rate=0.0)
    return RMSprop(learning_rate=rate, decay=learner.smoothing, epsilon=learner.epsilon)
