"""The four roles of an algorithm: problem, gradients, optimiser and actor.

A ``Problem`` says in plain numbers what an iteration computes and moves; it needs no torch. A
learner evaluates ``Gradients`` at the broadcast parameters, the controller's ``Optimiser`` applies
the decoded targets, and an ``Actor`` plays: in collection, in evaluation, in exports. The roles of
one process share its ``Parameters``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.registry import Registry
from fullrank.common.types import BoolArray, FloatArray, Matrix, UnitIndex
from fullrank.environments.base import AgentSpec
from fullrank.environments.neighbourhood import NeighbourhoodWorld, make_neighbourhood


class Unit(NamedTuple):
    """One unit of work, the column of C that its index names."""

    agent: int | None
    """The agent whose networks it updates; None where all agents share them."""
    part: int = 0
    """Which part of that update: a micro-batch, numbered from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parameters broadcast as one piece: one network of one owner."""

    id: int
    role: str
    """``policy``, ``critic``, ``target_policy``, ...."""
    owner: int | None
    """The agent that the network belongs to; None where all agents share it."""
    size: int
    """Entries, float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMode:
    """Origin of the transitions that updates are computed from."""

    kind: Literal["shared", "keyed", "independent"] = "shared"
    """``shared``: one minibatch for all, from replay. ``keyed``: learners collect the transitions
    of a unit themselves, the same for every holder. ``independent``: every holder draws its own
    [DARL1N], so that decoding leaves noise and no update can be audited."""
    batch_size: int = 0
    """B, transitions of the minibatch from replay; 0 where learners collect them."""
    max_variance: float = float("inf")
    """``independent``: the largest predicted variance of decoded units, in that of one learner's
    own update, at which an iteration waits for no further row."""
    evaluate_every: int = 0
    """Without replay: iterations from one evaluation in the environment to the next."""

    @property
    def exact(self) -> bool:
        """Whether all holders of a unit compute the same bits."""
        return self.kind != "independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What an iteration computes and moves; follows from configuration and environment alone."""

    units: tuple[Unit, ...]
    """All units; their order is that of the columns of C."""
    unit_sizes: tuple[int, ...]
    """P_i: entries of each unit's update; P = max P_i is the length of a coded vector."""
    sections: tuple[Section, ...]
    """All sections, by ascending id, which is their index."""
    reads: tuple[tuple[int, ...], ...]
    """Ids of the sections that each unit's update reads."""
    row_size: int
    """Entries of one packed transition, float32 (layout: ``fullrank.replay.layout``)."""
    data: DataMode
    target: Matrix | None = None
    """T, shape (targets K, units): an iteration recovers T U. None: every unit, T = I."""

    @property
    def vector_size(self) -> int:
        """P, entries of a coded vector."""
        return max(self.unit_sizes)

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        """Ids of the sections that the update of a unit reads."""
        return self.reads[unit]


class Parameters(Protocol):
    """All networks of one process, section by section."""

    def view(self, section: int) -> FloatArray:
        """The section's parameters as a writable flat array on the CPU, shape (size,)."""

    def written(self) -> None:
        """Take over what was written through ``view`` (a device copy is then refreshed)."""


class Gradients(Protocol):
    """A learner's role: one unit's update at the broadcast parameters."""

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = ...,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i, snapped to the grid, for each unit asked for; pure in all its arguments.

        Unit i's bits depend on the parameters, the batch, the run's seed, the iteration, i and, in
        the ``independent`` mode, the row: not on which other units are computed beside it, in what
        number or order.

        Args:
            batch: Packed transitions, shape (B, row_size) float32; empty where B is 0.
            units: The units to compute, any order, no repeats.
            iteration: Keys the draws.
            row: Row of C that the learner computes for; keys the draws in the ``independent`` mode.
            check_cancelled: Called between stages; raises to abandon the work (``Cancelled``).

        Yields:
            (i, u_i) with u_i of shape (P_i,) float32, in the order of completion.
        """

    def fingerprint(self) -> str:
        """Numeric identity of this process: kernels, instruction set, torch, threads, device."""


class Optimiser(Protocol):
    """The controller's role: decoded targets into parameters."""

    def step(self, targets: FloatArray) -> None:
        """Apply the decoded targets, shape (K, P) float32, and move the target networks."""

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Copies of all that a checkpoint holds: parameters, targets, moments; names to arrays."""

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore what ``state`` gave.

        Raises:
            CheckpointUnusable: A name is missing or a shape differs.
        """


Memory: TypeAlias = tuple[FloatArray, ...]
"""An actor's recurrent state, arrays of shape (copies, ...); empty for perceptrons. A copy's
entries are zero when its episode starts."""


class Player(Protocol):
    """Joint observations and memory in, joint actions and memory out."""

    def memory(self, copies: int) -> Memory:
        """The memory of ``copies`` environments whose episodes start."""

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
        """Exploring joint actions, keyed by (seed, iteration, step).

        Args:
            observation: Packed, shape (E, sum of observation sizes) float32.
            memory: As of the step before.
            iteration: Iteration that collects (-1 for the warm-up).
            step: Step within the iteration's collection.
            alive: Shape (E, M); the actions of agents not alive are zero.
            available: Discrete actions that may be taken, shape (E, sum of action sizes); all by
                default.
        """

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """Joint actions without exploration: the mode (discrete) or the mean (continuous)."""


class Actor(Player, Protocol):
    """The role that plays, in collection and evaluation, and is exported."""

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        """The agent's policy, a perceptron with ReLU between its layers, from the input up.

        Returns:
            Each layer as one matrix [W | b], shape (outputs, inputs + 1). The last one's outputs
            are logits (discrete), or the mean before tanh and the range (continuous).

        Raises:
            ConfigError: The policy is not such a perceptron.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The roles of one process, which share its parameters."""

    problem: Problem
    parameters: Parameters
    gradients: Gradients
    optimiser: Optimiser
    actor: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The environment as an algorithm meets it."""

    agents: tuple[AgentSpec, ...]
    """In order."""
    neighbourhoods: Callable[[], NeighbourhoodWorld] | None = None
    """Neighbour interaction, where the environment has it."""

    def local(self) -> NeighbourhoodWorld:
        """The environment as neighbours see it.

        Raises:
            ConfigError: It has no neighbour interaction.
        """
        if self.neighbourhoods is None:
            raise ConfigError("this algorithm needs an environment of neighbours; choose another")
        return self.neighbourhoods()


class AlgorithmConfig(Protocol):
    """A registered algorithm: a frozen dataclass whose fields are its configuration."""

    def data_mode(self) -> DataMode:
        """Where transitions come from, in every world."""

    def problem(self, world: World) -> Problem:
        """What ``make`` builds will compute and move; allocates no parameters."""

    def make(self, world: World, *, seed: int, device: str) -> Algorithm:
        """Build the algorithm with parameters drawn from ``seed``.

        Args:
            world: Agents and their neighbourhoods.
            seed: The run's seed.
            device: ``auto``, ``cpu`` or ``cuda``.
        """


algorithms: Registry[AlgorithmConfig] = Registry("algorithm", "fullrank.algorithms")
register = algorithms.register


def world_of(
    agents: Sequence[AgentSpec], *, environment: str, count: int, params: Mapping[str, Any]
) -> World:
    """The world of a registered environment.

    Args:
        agents: The environment's agents, in order.
        environment: Registered name, or ``package.module:factory``.
        count: M as configured; 0 means the environment's own number.
        params: The environment's parameters.
    """
    return World(
        agents=tuple(agents),
        neighbourhoods=lambda: make_neighbourhood(environment, agents=count, **params),
    )
