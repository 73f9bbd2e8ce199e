"""A toy algorithm for simulations: tiny updates that differ whenever any of their inputs does.

Parameters, minibatch, seed and iteration key a random stream, so that a stale section or another
minibatch gives other bits. Where learners draw samples of their own, the row takes the
minibatch's place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google_crc32c import value as crc32c

from fullrank.algorithms.base import Section, register
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray, UnitIndex
from fullrank.common.updates import snap
from fullrank.environments import AgentSpec

SIZE = 5
"""Parameters of a unit; the update of unit i has i more entries."""


class Toy:
    """One policy section for each unit; every unit needs all sections."""

    def __init__(self, agents: Sequence[AgentSpec], *, seed: int) -> None:
        self.units = len(agents)
        self.sections = tuple(
            Section(id=unit, role="policy", unit=unit, size=SIZE) for unit in range(self.units)
        )
        self.unit_sizes = tuple(SIZE + unit for unit in range(self.units))
        self._actions = sum(agent.action.size for agent in agents)
        observations = sum(agent.observation_size for agent in agents)
        self.row_size = 2 * observations + self._actions + 3 * self.units
        self._seed = seed
        self._parameters = np.zeros((self.units, SIZE), np.float32)

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        """All sections."""
        return range(self.units)

    def view(self, section: int) -> FloatArray:
        """Parameters of a unit."""
        view: FloatArray = self._parameters[section]
        return view

    def written(self) -> None:
        """Do nothing: there is no second copy of the parameters."""

    def updates(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Updates keyed by all their inputs."""
        check_cancelled()
        return self._drawn(units, crc32c(batch.tobytes()), iteration)

    def _drawn(
        self, units: Sequence[UnitIndex], samples: int, iteration: int
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        key = (crc32c(self._parameters.tobytes()), samples, iteration)
        for unit in units:
            draws = stream(self._seed, "update", *key, unit).standard_normal(self.unit_sizes[unit])
            yield unit, snap((0.01 * draws).astype(np.float32))

    def apply(self, updates: FloatArray) -> None:
        """Add the head of each update."""
        self._parameters += updates[:, :SIZE]

    def act(
        self, observation: FloatArray, *, iteration: int, step: int, alive: BoolArray
    ) -> FloatArray:
        """Random actions, keyed by the parameters too."""
        key = (crc32c(self._parameters.tobytes()), iteration + 1, step)
        shape = (len(observation), self._actions)
        return stream(self._seed, "act", *key).random(shape, dtype=np.float32)

    def act_greedily(self, observation: FloatArray) -> FloatArray:
        """Zero actions."""
        return np.zeros((len(observation), self._actions), np.float32)

    def policy(self, unit: UnitIndex) -> tuple[FloatArray, ...]:
        """No layers: simulated policies are never exported."""
        return ()

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Copy of the parameters."""
        return {"parameters": self._parameters.copy()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the parameters."""
        self._parameters[:] = state["parameters"]

    def fingerprint(self) -> str:
        """A constant: simulated learners compute alike."""
        return "toy"


class IndependentToy(Toy):
    """The variant with samples of each row's own; see ``IndependentAlgorithm``."""

    def __init__(self, agents: Sequence[AgentSpec], *, seed: int, max_variance: float) -> None:
        super().__init__(agents, seed=seed)
        self.max_variance = max_variance

    def updates_of_row(
        self,
        row: int,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Updates keyed by the row instead of the minibatch."""
        check_cancelled()
        return self._drawn(units, row, iteration)


@register("toy")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToyConfig:
    """Configuration of the toy algorithm."""

    batch_size: int = 4
    """B, transitions in one minibatch."""

    def dimensions(self, agents: Sequence[AgentSpec]) -> Toy:
        """Dimensions of the algorithm."""
        return self.make(agents, seed=0, device="cpu")

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> Toy:
        """The algorithm with zero parameters."""
        return Toy(agents, seed=seed)


@register("independent_toy")
@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentToyConfig(ToyConfig):
    """Configuration of the variant whose learners draw samples of their own."""

    max_variance: float = 1.0
    """A limit that some codes reach with few rows, others with all or never."""

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> IndependentToy:
        """The algorithm with zero parameters."""
        return IndependentToy(agents, seed=seed, max_variance=self.max_variance)
