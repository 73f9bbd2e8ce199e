"""The four roles of an algorithm: problem, gradients, optimiser and actor.

A ``Problem`` describes in plain numbers the data that an iteration computes and transfers; it needs
no torch. A learner evaluates ``Gradients`` at the broadcast parameters, the controller's
``Optimiser`` applies the decoded targets, and an ``Actor`` selects actions in collection,
evaluation and exports. The roles of one process share its ``Parameters``.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fullrank.codes.targets import is_each_unit
from fullrank.common.errors import ConfigError
from fullrank.common.registry import Registry
from fullrank.common.types import BoolArray, FloatArray, Matrix, UnitIndex
from fullrank.environments.base import AgentSpec
from fullrank.environments.neighbourhood import NeighbourhoodWorld, make_neighbourhood
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.items import Items
from fullrank.replay.layout import Layout


class Unit(NamedTuple):
    """One unit of work; its index is its column of C."""

    agent: int | None
    """Agent whose networks the unit updates; None where all agents share them."""
    part: int = 0
    """Number of the part (micro-batch) of that update, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parameters broadcast as one section: one network of one owner."""

    id: int
    role: str
    """Role of the network: ``policy``, ``critic``, ``target_policy``, ...."""
    owner: int | None
    """Agent to which the network belongs; None where all agents share it."""
    size: int
    """Number of float32 entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMode:
    """Origin of the transitions from which updates are computed."""

    kind: Literal["shared", "keyed", "independent"] = "shared"
    """``shared``: one minibatch from replay for all units. ``keyed``: learners collect a unit's
    transitions, the same for every holder. ``independent``: every holder draws its own transitions
    [DARL1N], so that decoding leaves noise and no update can be audited."""
    batch_size: int = 0
    """B, transitions or episodes of the minibatch from replay; 0 where learners collect."""
    newest_episodes: int = 0
    """Number of newest episodes from which B are drawn; 0 where transitions are drawn."""
    max_variance: float = float("inf")
    """``independent``: largest predicted variance of decoded units at which an iteration waits for
    no further row, as a multiple of the variance of one learner's own update."""
    evaluate_every: int = 0
    """Without replay: number of iterations between evaluations in the environment."""

    @property
    def exact(self) -> bool:
        """Return whether all holders of a unit compute the same bits."""
        return self.kind != "independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Units, sections and sizes of an iteration, fixed by configuration and environment alone."""

    units: tuple[Unit, ...]
    """All units, in the order of the columns of C."""
    unit_sizes: tuple[int, ...]
    """P_i, entries of each unit's update; P = max P_i is the length of a coded vector."""
    sections: tuple[Section, ...]
    """All sections by ascending id; a section's id is its index."""
    reads: tuple[tuple[int, ...], ...]
    """Ids of the sections that each unit's update reads."""
    row_size: int
    """Number of float32 entries of a packed transition (layout: ``fullrank.replay.layout``)."""
    data: DataMode
    episodes: EpisodeLayout | None = None
    """Layout of a row if the minibatch consists of whole episodes; None: packed transitions."""
    masked: bool = False
    """True if packed transitions hold the masks of available actions."""
    items: tuple[Sequence[int], ...] | None = None
    """Numbers of the items of the minibatch, transitions or episodes, that each unit's update
    reads; None: all items. A learner fetches the items that its units read."""
    target: Matrix | None = None
    """T, shape (targets K, units), if an iteration recovers T U; None if T = I, every unit."""

    @property
    def vector_size(self) -> int:
        """Return P, the number of entries of a coded vector."""
        return max(self.unit_sizes)

    @property
    def recovers_units(self) -> bool:
        """Return whether T = I, so that decoding gives every u_i."""
        return self.target is None or is_each_unit(self.target)

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        """Return the ids of the sections that the update of a unit reads."""
        return self.reads[unit]

    def items_of(self, units: Iterable[UnitIndex]) -> Items:
        """Return the numbers of the items that these units read; None if they read all."""
        if self.items is None:
            return None
        read = {item for unit in units for item in self.items[unit]}
        return tuple(sorted(read)) if len(read) < self.data.batch_size else None

    def share_of(self, units: Iterable[UnitIndex]) -> float:
        """Return the share of the minibatch's items that these units read."""
        items = self.items_of(units)
        return 1.0 if items is None else len(items) / self.data.batch_size


class Parameters(Protocol):
    """All networks of one process, section by section."""

    def view(self, section: int) -> FloatArray:
        """Return the section's parameters as a writable flat CPU array, shape (size,)."""

    def written(self) -> None:
        """Apply values written through ``view``, for example by refreshing a device copy."""


class Gradients(Protocol):
    """The learner's role: units' updates at the broadcast parameters."""

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = ...,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i, snapped to the grid, for each requested unit; pure in all its arguments.

        Unit i's bits depend on the parameters, the batch, the run's seed, the iteration, i and, in
        the ``independent`` mode, the row; they do not depend on the identity, number or order of
        the other units in the call.

        Args:
            batch: Packed transitions, shape (B, row_size) float32, or all rows of B episodes;
                empty where B is 0. Rows of items that the units do not read may be zero, except
                for the lengths of episodes.
            units: Units to compute, in any order, without repeats.
            iteration: Keys the draws.
            row: Row of C for which the units are computed; keys ``independent`` draws.
            check_cancelled: Called between stages; raises ``Cancelled`` to abandon the work.

        Yields:
            (i, u_i) with u_i of shape (P_i,) float32, in the order of completion.
        """

    def fingerprint(self) -> str:
        """Return the process's numeric identity: kernel, instructions, torch, threads, device."""


class Optimiser(Protocol):
    """The controller's role: application of decoded targets to the parameters."""

    def step(self, targets: FloatArray) -> Mapping[str, float]:
        """Apply the decoded targets, shape (K, P) float32, and move the target networks.

        Returns:
            Statistics of the step for the iteration's record, by name; may be empty.
        """

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return named copies of the arrays in a checkpoint: parameters, targets, moments."""

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: A name is missing or a shape differs.
        """


ACTING = ("policy", "agent")
"""Roles of the networks that select actions: each agent's own policy, or one network of all."""

Memory: TypeAlias = tuple[FloatArray, ...]
"""Recurrent state of an actor, arrays of shape (copies, ...); empty for perceptrons. A copy's
entries are zero when its episode starts."""


class Player(Protocol):
    """Mapping from joint observations and memory to joint actions and memory."""

    def memory(self, copies: int) -> Memory:
        """Return the initial memory for ``copies`` environments."""

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        """Return exploring joint actions, keyed by (seed, iteration, step), and the new memory.

        Args:
            observation: Packed observations, shape (E, sum of observation sizes) float32.
            memory: Memory returned by the previous step.
            iteration: Iteration of the collection (-1 for the warm-up).
            step: Step within the iteration's collection.
            alive: Mask of agents, shape (E, M); agents that are not alive get zero actions.
            available: Mask of permitted discrete actions, shape (E, sum of action sizes); by
                default all are permitted.
        """

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """Return joint actions without exploration: mode (discrete) or mean (continuous)."""


@runtime_checkable
class Annealed(Protocol):
    """A player whose exploration depends on the number of steps that were played."""

    def anneal(self, env_steps: int) -> float:
        """Set the number of environment steps played before the next collection.

        Returns:
            The probability of a random action in it.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecurrentLayers:
    """One agent's part of a team's network of action values, as matrices [W | b].

    It has the agent's own inputs and actions, and a recurrent state of H entries.
    """

    first: FloatArray
    """From the observation and, with ``last_action``, the last action as one-hot; H rows. The
    identity of the agent is part of the bias."""
    input_gates: FloatArray
    """Reset, update and new gate of the GRU from the ReLU of the first layer, 3 H rows. Without a
    recurrent state, a layer with ReLU, H rows."""
    state_gates: FloatArray | None
    """The same gates from the recurrent state, 3 H rows; None without a recurrent state."""
    last: FloatArray
    """To the values of the agent's actions."""
    last_action: bool
    """True if the network sees the last action."""


class Actor(Player, Protocol):
    """The role that selects actions in collection and evaluation, and is exported."""

    def policy(self, agent: int) -> tuple[FloatArray, ...] | RecurrentLayers:
        """Return the agent's policy, a perceptron with ReLU between its layers, or recurrent.

        Returns:
            Each layer of a perceptron, from the input up, as one matrix [W | b], shape (outputs,
            inputs + 1). The outputs of the last layer are logits (discrete) or the mean before tanh
            and scaling (continuous). A recurrent policy chooses the action of highest value.

        Raises:
            ConfigError: The policy is neither.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The four roles of one process, which share its parameters."""

    problem: Problem
    parameters: Parameters
    gradients: Gradients
    optimiser: Optimiser
    actor: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """Facts about the environment on which an algorithm depends."""

    agents: tuple[AgentSpec, ...]
    """Specifications of the agents, in order."""
    neighbourhoods: Callable[[], NeighbourhoodWorld] | None = None
    """Factory of the neighbour interaction; None if the environment has none."""
    state_size: int = 0
    """Number of entries of the global state; 0: the joint observation serves as the state."""
    masked: bool = False
    """True if some actions may be unavailable to a living agent."""

    @property
    def layout(self) -> Layout:
        """Return the layout of transitions, with masks if the environment offers them."""
        return layout_of(self.agents, masked=self.masked)

    def local(self) -> NeighbourhoodWorld:
        """Return the environment's neighbour interaction.

        Raises:
            ConfigError: The environment has no neighbour interaction.
        """
        if self.neighbourhoods is None:
            raise ConfigError("this algorithm needs an environment of neighbours; choose another")
        return self.neighbourhoods()


class AlgorithmConfig(Protocol):
    """A registered algorithm: a frozen dataclass whose fields are its configuration."""

    @abstractmethod
    def data_mode(self) -> DataMode:
        """Return the origin of the transitions, which is the same for every environment."""

    @abstractmethod
    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe the algorithm that ``make`` builds, without allocating parameters."""

    @abstractmethod
    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build the algorithm with initial parameters drawn from ``seed``.

        Args:
            environment: Agents and their neighbourhoods.
            seed: The run's seed.
            device: ``auto``, ``cpu`` or ``cuda``.
        """


def layout_of(agents: Sequence[AgentSpec], *, masked: bool = False) -> Layout:
    """Return the layout of the agents' transitions; ``masked`` ones hold masks of actions."""
    return Layout(
        observation_sizes=tuple(agent.observation_size for agent in agents),
        action_sizes=tuple(agent.action.size for agent in agents),
        masked=masked,
        always_zero=tuple(agent.always_zero for agent in agents),
    )


algorithms: Registry[AlgorithmConfig] = Registry(
    "algorithm", "fullrank.algorithms", interface=AlgorithmConfig
)
register = algorithms.register


def environment_spec(
    agents: Sequence[AgentSpec],
    *,
    environment: str,
    count: int,
    params: Mapping[str, Any],
    state_size: int = 0,
    masked: bool = False,
) -> EnvironmentSpec:
    """Return the specification of a registered environment.

    Args:
        agents: Specifications of the environment's agents, in order.
        environment: Registered name, or ``package.module:factory``.
        count: Configured number of agents; 0 means the environment's default.
        params: Parameters of the environment.
        state_size: Entries of its global state; 0 if it has none.
        masked: True if some actions may be unavailable to a living agent.
    """
    return EnvironmentSpec(
        agents=tuple(agents),
        state_size=state_size,
        masked=masked,
        neighbourhoods=cache(lambda: make_neighbourhood(environment, agents=count, **params)),
    )
