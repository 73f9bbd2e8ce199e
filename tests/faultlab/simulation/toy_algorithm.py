"""A toy algorithm for simulations: tiny updates that differ whenever any of their inputs does.

Parameters, minibatch, seed and iteration key a random stream; a learner that computes with a stale
section or another minibatch gets other bits. In the ``independent`` mode the row replaces the
minibatch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from google_crc32c import value as crc32c

from fullrank.algorithms.base import EnvironmentSpec, layout_of, register
from fullrank.algorithms.problem import DataMode, Problem, Section, Unit
from fullrank.algorithms.roles import Algorithm, Memory
from fullrank.codes.targets import sums_of_groups
from fullrank.common.errors import ConfigError
from fullrank.common.rows import Rows
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray, UnitIndex
from fullrank.common.updates import snap

SIZE = 5
"""Parameters of a unit; unit i's update has i entries more."""


class Toy:
    """All four roles and their parameters: one policy section per unit, read by every unit."""

    def __init__(self, problem: Problem, *, actions: int, seed: int) -> None:
        self._problem, self._actions, self._seed = problem, actions, seed
        self._parameters = np.zeros((len(problem.units), SIZE), np.float32)

    def view(self, section: int) -> FloatArray:
        """A unit's parameters."""
        view: FloatArray = self._parameters[section]
        return view

    def written(self) -> None:
        """Do nothing: there is no other copy."""

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Draw updates keyed by all inputs on which they may depend."""
        check_cancelled()
        samples = crc32c(batch.tobytes())
        if not self._problem.data.exact and row is not None:
            samples = row
        key = (crc32c(self._parameters.tobytes()), samples, iteration)
        for unit in units:
            size = self._problem.unit_sizes[unit]
            draws = stream(self._seed, "update", *key, unit).standard_normal(size)
            yield unit, snap((0.01 * draws).astype(np.float32))

    def fingerprint(self) -> str:
        """A constant, equal on all machines."""
        return "toy"

    def step(self, targets: Rows) -> Mapping[str, float]:
        """Add the head of each target to all units that it sums."""
        heads = np.asarray(targets)[:, :SIZE]
        self._parameters += np.repeat(heads, len(self._parameters) // len(heads), axis=0)
        return {}

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The state: the parameters."""
        return {"parameters": self._parameters.copy()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the parameters."""
        self._parameters[:] = state["parameters"]

    def memory(self, copies: int) -> Memory:
        """An empty memory."""
        return ()

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
        """Draw actions keyed by the parameters, too."""
        key = (crc32c(self._parameters.tobytes()), iteration + 1, step)
        shape = (len(observation), self._actions)
        return stream(self._seed, "act", *key).random(shape, dtype=np.float32), memory

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """Return zero actions, and the memory unchanged."""
        return np.zeros((len(observation), self._actions), np.float32), memory

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        """No layers: the policies are not networks."""
        return ()


@register("toy")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToyConfig:
    """The toy algorithm on a shared minibatch."""

    batch_size: int = 4
    """B, transitions in one minibatch."""

    def data_mode(self) -> DataMode:
        """One minibatch for all units."""
        return DataMode(batch_size=self.batch_size)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """One unit an agent, each larger than the one before."""
        count = len(environment.agents)
        return Problem(
            units=tuple(Unit((agent,)) for agent in range(count)),
            unit_sizes=tuple(SIZE + unit for unit in range(count)),
            sections=tuple(
                Section(id=unit, role="policy", agents=(unit,), size=SIZE) for unit in range(count)
            ),
            reads=(tuple(range(count)),) * count,
            row_size=layout_of(environment.agents).row_size,
            data=self.data_mode(),
        )

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """All roles in one object; parameters begin as zeros."""
        problem = self.problem(environment)
        actions = sum(agent.action.size for agent in environment.agents)
        roles = Toy(problem, actions=actions, seed=seed)
        return Algorithm(
            problem=problem, parameters=roles, gradients=roles, optimiser=roles, actor=roles
        )


@register("summed_toy")
@dataclass(frozen=True, slots=True, kw_only=True)
class SummedToyConfig(ToyConfig):
    """The toy algorithm whose units are parts of few updates: only their sums are recovered."""

    groups: int = 1
    """K, number of sums; each is over as many consecutive units."""

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Parts of updates that all agents of a group share.

        Raises:
            ConfigError: The units do not form so many equal groups.
        """
        problem = ToyConfig.problem(self, environment)
        count = len(problem.units)
        if self.groups < 1 or count % self.groups:
            raise ConfigError(f"algorithm.groups = {self.groups} does not divide {count} units")
        everyone = tuple(range(len(environment.agents)))
        units = tuple(Unit(everyone, part) for part in range(count))
        target = sums_of_groups(self.groups, count // self.groups)
        return replace(problem, units=units, target=target)


@register("independent_toy")
@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentToyConfig(ToyConfig):
    """The toy algorithm where learners collect for themselves."""

    max_variance: float = 1.0
    """Limit that some of the codes reach with a few rows, others with all rows or never."""

    def data_mode(self) -> DataMode:
        """One minibatch, which the row replaces."""
        return DataMode(
            kind="independent", batch_size=self.batch_size, max_variance=self.max_variance
        )
