"""What the engine asks of an algorithm: sections of parameters, pure unit updates, an optimiser.

An ``Algorithm`` object holds one copy of the parameters. The controller's copy is the truth: it
acts and applies updates. A learner's copy is a buffer into which the broadcast sections are
written before ``updates`` is called; a learner never applies anything.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fullrank.common.registry import Registry
from fullrank.common.types import BoolArray, FloatArray, UnitIndex
from fullrank.environments.base import AgentSpec
from fullrank.environments.neighbourhood import NeighbourhoodWorld, make_neighbourhood


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parameters broadcast as one piece: one role (policy, critic, ...) of one unit."""

    id: int
    role: str
    unit: UnitIndex
    size: int
    """Entries, float32."""


class Dimensions(Protocol):
    """What follows from the agents alone: how much an iteration moves, before anything is made."""

    units: int
    """M."""
    sections: tuple[Section, ...]
    """All sections, by ascending id, which is their index."""
    unit_sizes: tuple[int, ...]
    """P_i: entries of each unit's update; P = max P_i is the length of a coded vector."""
    row_size: int
    """Entries of one packed transition, float32 (layout: ``fullrank.replay.layout``)."""

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        """Ids of the sections that the update of ``unit`` reads."""


class Algorithm(Dimensions, Protocol):
    """M units, their parameters, and the mathematics of one iteration."""

    def view(self, section: int) -> FloatArray:
        """The section's parameters as a writable flat array on the CPU, shape (size,)."""

    def written(self) -> None:
        """Say that sections were written through ``view`` (a device copy is then refreshed)."""

    def updates(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = ...,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i, snapped to the grid, for each unit asked for; pure in all its arguments.

        Unit i's bits depend on the parameters, the batch, the run's seed, the iteration and i
        alone: not on which other units are computed beside it, in what number or order.

        Args:
            batch: Packed transitions, shape (B, row_size) float32; empty where B is 0.
            units: The units to compute, any order, no repeats.
            iteration: Keys the draws.
            check_cancelled: Called between stages; raises to abandon the work (``Cancelled``).

        Yields:
            (i, u_i) with u_i of shape (P_i,) float32, in the order of completion.
        """

    def apply(self, updates: FloatArray) -> None:
        """Optimiser step and target networks, from all units' updates, shape (M, P) float32."""

    def act(
        self, observation: FloatArray, *, iteration: int, step: int, alive: BoolArray
    ) -> FloatArray:
        """Exploring joint actions, keyed by (seed, iteration, step).

        Args:
            observation: Packed, shape (E, sum of observation sizes) float32.
            iteration: Iteration that collects (-1 for the warm-up).
            step: Step within the iteration's collection.
            alive: Shape (E, M); the actions of agents not alive are zero.

        Returns:
            Packed joint actions, shape (E, sum of action sizes) float32.
        """

    def act_greedily(self, observation: FloatArray) -> FloatArray:
        """Joint actions without exploration: the mode (discrete) or the mean (continuous)."""

    def policy(self, unit: UnitIndex) -> tuple[FloatArray, ...]:
        """The unit's policy, a perceptron with ReLU between its layers, from the input up.

        Returns:
            Each layer as one matrix [W | b], shape (outputs, inputs + 1). The last one's outputs
            are logits (discrete), or the mean before tanh and the range (continuous).
        """

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Everything that a checkpoint holds: parameters, targets, optimiser; names to arrays."""

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore what ``state`` gave.

        Raises:
            CheckpointUnusable: A name is missing or a shape differs.
        """

    def fingerprint(self) -> str:
        """Numeric identity of this process: kernels, instruction set, torch, threads, device."""


@runtime_checkable
class IndependentAlgorithm(Algorithm, Protocol):
    """Learners draw samples of their own, so that each gets another update of a unit ([DARL1N]).

    ``updates`` then computes units for nobody in particular. Nothing is clipped before ``apply``,
    so that the mean over all draws is the gradient.
    """

    max_variance: float
    """The mean variance of decoded units, in that of one learner's own, that is waited for."""

    def updates_of_row(
        self,
        row: int,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = ...,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """``updates``, from the samples that the holder of a row draws: keyed by the row, too."""


class AlgorithmConfig(Protocol):
    """A registered algorithm: a frozen dataclass whose fields are its configuration."""

    @property
    def batch_size(self) -> int:
        """B, transitions in one minibatch; 0 if learners make the samples of their units."""

    def dimensions(self, agents: Sequence[AgentSpec]) -> Dimensions:
        """Those of what ``make`` builds for the same agents; allocates no parameters."""

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> Algorithm:
        """Build the algorithm with parameters drawn from ``seed``.

        Args:
            agents: The environment's agents, in order.
            seed: The run's seed.
            device: ``auto``, ``cpu`` or ``cuda``.
        """


@runtime_checkable
class IndependentAlgorithmConfig(AlgorithmConfig, Protocol):
    """A registered algorithm that makes an ``IndependentAlgorithm``."""

    @property
    def max_variance(self) -> float:
        """That of what ``make`` builds."""


@runtime_checkable
class LocalAlgorithmConfig(Protocol):
    """A registered algorithm whose learners make the samples of their units ([DARL1N])."""

    @property
    def evaluate_every(self) -> int:
        """Iterations from one evaluation in the whole environment to the next."""

    def within(self, world: NeighbourhoodWorld) -> AlgorithmConfig:
        """The algorithm that makes its samples in a world."""


algorithms: Registry[AlgorithmConfig | LocalAlgorithmConfig] = Registry(
    "algorithm", "fullrank.algorithms"
)
register = algorithms.register


def recipe_in(
    config: AlgorithmConfig | LocalAlgorithmConfig,
    *,
    environment: str,
    agents: int,
    params: Mapping[str, Any],
) -> AlgorithmConfig:
    """What makes the algorithm for an environment.

    Args:
        config: Of the algorithm.
        environment: Registered name.
        agents: M; 0 means the environment's own number.
        params: The environment's.

    Raises:
        ConfigError: The algorithm wants neighbour interaction, and the environment has none.
    """
    if isinstance(config, LocalAlgorithmConfig):
        return config.within(make_neighbourhood(environment, agents=agents, **params))
    return config
