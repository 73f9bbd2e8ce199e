"""Teams of action values: their networks, what they choose, and their longer returns.

All agents share one network of action values, or ``share`` names groups that have one each; they
learn from one loss, and so in one unit. A subclass says how the values of the agents' chosen
actions make the value that temporal differences are taken of, and what the loss is.

Unit i is micro-batch i of M: ceil(B / M) consecutive episodes of the minibatch. Its update is the
gradient of its episodes' share of the loss, scaled by 2^(-6 - e), with e the exponent of the sums,
and clamped to 1/2, the bound of exact encoding; an iteration recovers the sum of all updates, which
is gradient coding [Tandon17]. The controller undoes the scale, clips the global norm of the sum and
steps the optimiser. The unit's share of the statistics follows its gradient. M is configuration:
bits depend on it, but not on the number of learners.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fullrank.algorithms.autograd import AutogradGradients
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.groups import (
    Groups,
    Networks,
    Sharing,
    groups_of,
    initial_parameters,
    problem_of,
)
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.ranges import check_ranges
from fullrank.algorithms.trajectories import (
    SCALE,
    Now,
    Trajectories,
    best_actions,
    chosen_values,
)
from fullrank.algorithms.updates import Entries, Statistics, check_micro_batches
from fullrank.codes.targets import LIMIT
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments.base import Discrete
from fullrank.networks.fused import kernels
from fullrank.networks.images import ImageEncoder, Model, Seeing, image_of, kept, name_recurrent
from fullrank.networks.value_networks import FeedForwardAgent, GroupedAgents, RecurrentAgent
from fullrank.replay.episodes import EpisodeLayout, episodes_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionValues(ABC):
    """Hyperparameters of teams of action values; the defaults are those of PyMARL."""

    batch_size: int = 32
    """B, number of episodes over whose steps an update averages."""
    micro_batches: int = 4
    """M, number of units into which the B episodes are split; independent of the learners."""
    hidden: int = 64
    """Width of the hidden layer and of the recurrent state of the agents' network."""
    recurrent: bool = True
    """Give the agents' network a recurrent state, its memory of an episode's earlier steps."""
    learning_rate: float = 5e-4
    """Learning rate of the optimiser."""
    clip_norm: float = 10.0
    """L2 norm to which the whole gradient is clipped."""
    discount: float = 0.99
    """Discount factor, gamma."""
    trace: float = 0.0
    """Weight lambda of longer returns in the targets, TD(lambda)."""
    time_limit_bootstrap: bool = True
    """Let an episode that a time limit cut off go on with the value after its last step; false:
    nothing is expected after it."""
    exploration_start: float = 1.0
    """Initial probability epsilon of a random action."""
    exploration_end: float = 0.05
    """Final probability epsilon of a random action."""
    exploration_steps: int = 50_000
    """Number of environment steps over which epsilon falls linearly."""
    exploration_spread: float = 1.0
    """Draw the probability of a random action for each episode, between epsilon and so many times
    it, as in the authors' program of [CMARL]; 1: it is epsilon."""
    last_action: bool = True
    """Give an agent its last action as input."""
    identity: bool = True
    """Give an agent its index as input, one-hot."""
    layer_norm: bool = False
    """Normalise hidden layers before ReLU."""
    model: Model = "auto"
    """The agents' network: ``mlp``, layers as they are; ``gru``, these with ``recurrent`` set;
    ``cnn``, convolutions below them, of images of bytes; ``auto``: ``cnn`` where all agents observe
    such images."""
    share: Sharing = "all"
    """Agents that share a network of action values: ``all``; ``side``, those of a side; ``none``;
    or a table of groups with the names of their agents. Several networks are computed by
    autograd."""

    entries: ClassVar[Entries]
    """Statistics that follow a gradient."""
    whole_episodes: ClassVar[bool] = True
    """Minibatches are of whole episodes, which determines the default sizes of a run."""

    def __post_init__(self) -> None:
        check_ranges(self)
        name_recurrent(self)
        if min(self.batch_size, self.hidden) < 1:
            raise ConfigError("algorithm.batch_size and hidden must be at least 1")
        check_micro_batches(self.micro_batches, batch_size=self.batch_size)
        if self.exploration_spread < 1:
            raise ConfigError("algorithm.exploration_spread must be at least 1")

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

    @abstractmethod
    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of the loss, one for all networks, and of the statistics.

        Args:
            nets: All networks.
            batch: The unit's episodes.
        """

    @abstractmethod
    def data_mode(self) -> DataMode:
        """Return the origin of the minibatch."""

    def joint(
        self,
        nets: Networks,
        values: Tensor,
        action: Tensor,
        available: Tensor,
        state: Tensor,
        *,
        target: bool,
    ) -> Tensor:
        """Return the values of joint actions; those of the agents' own actions, mixed.

        Args:
            nets: All networks.
            values: Values of all actions, shape (steps, K, n, A).
            action: Index of each agent's action, shape (steps, K, n); -1 where it cannot act.
            available: Mask of the actions that may be chosen, shape (steps, K, n, A).
            state: Global state, shape (steps, K, S).
            target: True to use target networks.

        Returns:
            Shape (steps, K, values), as of ``mix``.
        """
        return self.mix(nets, chosen_values(values, action), state, target=target)

    def agent(self, environment: EnvironmentSpec) -> nn.Module:
        """Build the network of action values that all agents share, or one for each group."""
        groups = self.groups(environment)
        built = [self.whole(environment) for _ in groups]
        return built[0] if len(built) == 1 else GroupedAgents(built, groups)

    def whole(self, environment: EnvironmentSpec) -> nn.Module:
        """Build a network of action values, above the features of an image if there is one."""
        image = image_of(self.model, environment.agents)
        if image is None:
            return self.network(environment)
        encoder = ImageEncoder(image, self.hidden, normalised=self.layer_norm)
        return Seeing(encoder, self.network(environment, seen=self.hidden))

    def network(
        self, environment: EnvironmentSpec, *, seen: int = 0
    ) -> RecurrentAgent | FeedForwardAgent:
        """Build a network of action values, which any agent may use.

        Args:
            environment: Agents.
            seen: Inputs that tell of an observation; 0: its entries.
        """
        layout = self.layout(environment)
        inputs = seen or max(layout.observation_sizes)
        inputs += self.last_action * max(layout.action_sizes) + self.identity * layout.agents
        network = RecurrentAgent if self.recurrent else FeedForwardAgent
        return network(inputs, self.hidden, max(layout.action_sizes), normalised=self.layer_norm)

    def values(
        self, network: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], batch: Trajectories
    ) -> Tensor:
        """Compute the values of all actions, shape (L + 1, K, n, A)."""
        inputs = self.inputs(batch)
        _, episodes, agents, _ = inputs.shape
        state = inputs.new_zeros(episodes * agents, self.hidden)
        values, _ = network(inputs.flatten(1, 2), state)
        return torch.unflatten(values, 1, (episodes, agents))

    def inputs(self, seen: Trajectories | Now) -> Tensor:
        """Return the inputs of the agents' network, shape (..., n, entries).

        Those that play and those that learn both take them from here.
        """
        *places, agents, _ = seen.observation.shape
        parts = [seen.observation]
        if self.last_action:
            parts.append(seen.last_action)
        if self.identity:
            identity = torch.eye(agents, device=seen.observation.device)
            parts.append(identity.expand(*places, agents, agents))
        return torch.cat(parts, -1)

    def minibatch(self, drawn: FloatArray, layout: EpisodeLayout) -> FloatArray:
        """Return the rows of all episodes of a minibatch from which units learn."""
        return drawn

    @property
    def plain_inputs(self) -> bool:
        """True if inputs are those of ``ActionValues``, which exports restate."""
        return type(self).inputs is ActionValues.inputs

    def returns(self, next_value: Tensor, batch: Trajectories) -> Tensor:
        """Compute G, shape (L, K, values), from Q' of the next states, of the same shape."""
        reward, continues = batch.reward[..., None], batch.continues[..., None]
        if not self.time_limit_bootstrap:
            continues = continues * batch.goes_on[..., None]
        if not self.trace:
            return reward + self.discount * continues * next_value
        goes_on = batch.goes_on[..., None]
        returns, later = torch.empty_like(next_value), next_value[-1]
        for step in reversed(range(len(next_value))):
            later = torch.where(goes_on[step], later, next_value[step])
            mean = (1.0 - self.trace) * next_value[step] + self.trace * later
            later = returns[step] = reward[step] + self.discount * continues[step] * mean
        return returns

    def played(
        self, rows: FloatArray, nets: Networks, layout: EpisodeLayout, *, less_taken: bool = False
    ) -> Iterator[tuple[slice, Tensor]]:
        """Compute G of episodes with the networks that played them, also in place of Q'.

        Networks see a copy of each episode by itself: the bits of a product depend on the number of
        its rows and on their alignment in memory.

        Args:
            rows: Rows of whole episodes.
            nets: All networks.
            layout: Layout of a row.
            less_taken: Subtract Q, the value of the actions that were taken.

        Yields:
            The place of an episode's steps in the rows, and their returns, shape (steps, values).
        """
        places = episodes_in(rows, layout.length)
        device = next(nets.agent[0].parameters()).device
        batch = Trajectories.of([rows[place] for place in places], layout, device=device)
        inputs, values = self.inputs(batch), batch.state.new_zeros(batch.available.shape)
        ends = [place.stop - place.start for place in places]

        def mixed(first: int, action: Tensor) -> Tensor:
            """Values of joint actions from a step on, padded to the longest episode."""
            found = []
            for episode, end in enumerate(ends):
                at = slice(first, first + end - 1), slice(episode, episode + 1)
                taken = action[: end - 1, at[1]].clone()
                own, may, state = (
                    each[at].clone() for each in (values, batch.available, batch.state)
                )
                value = self.joint(nets, own, taken, may, state, target=False)
                found.append(pad(value, (0, 0, 0, 0, 0, len(values) - end)))
            return torch.cat(found, 1)

        with kernels.DEFAULT.selected(), torch.no_grad():
            memory = inputs.new_zeros(layout.agents, self.hidden)
            for episode, end in enumerate(ends):
                values[:end, episode] = nets.agent[0](inputs[:end, episode].clone(), memory)[0]
            returns = self.returns(mixed(1, best_actions(values, batch.available)[1:]), batch)
            if less_taken:
                returns = returns - mixed(0, batch.action)
        for episode, (place, end) in enumerate(zip(places, ends, strict=True)):
            yield slice(place.start, place.stop - 1), returns[: end - 1, episode]

    @staticmethod
    def playing(problem: Problem) -> tuple[int, ...]:
        """Return the ids of the sections that ``played`` reads: all networks, and no targets."""
        roles = {each.role for each in problem.sections}
        return tuple(each.id for each in problem.sections if f"target_{each.role}" in roles)

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

    def groups(self, environment: EnvironmentSpec) -> Groups:
        """Return the agents that share a network, by default those that ``share`` names."""
        return groups_of(self.share, environment.agents)

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step; see ``episode_layout`` and ``kept``."""
        return kept(episode_layout(environment), self.model, environment.agents)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes without allocating parameters."""
        layout = self.layout(environment)
        return problem_of(
            groups_of("all", environment.agents),
            lambda agent: self.networks(environment),
            micro_batches=self.parts,
            entries=self.entries.size,
            row_size=layout.row_size,
            data=self.data_mode(),
            episodes=layout,
        )

    def initial(self, environment: EnvironmentSpec, *, seed: int, device: torch.device) -> Networks:
        """Make all networks with their initial parameters."""
        groups = groups_of("all", environment.agents)
        parameters = initial_parameters(
            lambda agent: self.networks(environment), groups, seed=seed, device=device
        )
        return Networks(lambda agent: self.networks(environment), groups, parameters)

    def readable(
        self, environment: EnvironmentSpec, nets: Networks, device: torch.device
    ) -> AutogradGradients:
        """Build the learner's role from the loss, by autograd."""
        layout, entries = self.layout(environment), self.entries

        def load(drawn: FloatArray) -> Callable[[UnitIndex, tuple[int, ...]], Trajectories | None]:
            rows, places = self.minibatch(drawn, layout), episodes_in(drawn, layout.length)

            def batch_of(unit: UnitIndex, key: tuple[int, ...]) -> Trajectories | None:
                part, steps = self.parts[unit], len(rows) - len(places)
                own = [rows[place] for place in places[part.start : part.stop]]
                if not own:
                    return None
                return Trajectories.of(own, layout, device=device, steps=steps)

            return batch_of

        return AutogradGradients(
            lambda agents, nets, batch, draws: self.losses(nets, batch),
            nets,
            self.problem(environment),
            batch_of=load,
            seal=lambda gradient, statistics, batch, agents: entries.after(
                np.clip(gradient * np.float32(SCALE * nets.parameters.factor(0)), -LIMIT, LIMIT),
                statistics,
            ),
            agents=environment.agents,
            device=device,
        )


def episode_layout(environment: EnvironmentSpec) -> EpisodeLayout:
    """Return the layout of the steps of the environment's episodes.

    Raises:
        ConfigError: An agent's actions are continuous, or several choices at once.
    """
    for agent in environment.agents:
        if not isinstance(agent.action, Discrete):
            raise ConfigError(
                f"{agent.name} has {agent.action.kind}, and value-based algorithms choose one "
                "of all actions; use ippo"
            )
    return EpisodeLayout(
        observation_sizes=tuple(agent.observation_size for agent in environment.agents),
        action_sizes=tuple(agent.action.size for agent in environment.agents),
        state_size=environment.state_size,
    )
