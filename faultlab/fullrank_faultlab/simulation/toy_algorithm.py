"""An algorithm of no use but this: tiny updates that differ wherever anything they rest on does.

Parameters, minibatch, seed and iteration key a random stream; whoever computes with a stale section
or another minibatch gets other bits. Of learners' own samples the row takes the minibatch's place.
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
"""Parameters of a unit; unit i's update has i entries more."""


class Sketch:
    """One policy section a unit; every unit needs all of them."""

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
        """A unit's parameters."""
        view: FloatArray = self._parameters[section]
        return view

    def written(self) -> None:
        """There is no other copy."""

    def updates(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Keyed by all that an update may rest on."""
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
        """Keyed by the parameters, too."""
        key = (crc32c(self._parameters.tobytes()), iteration + 1, step)
        shape = (len(observation), self._actions)
        return stream(self._seed, "act", *key).random(shape, dtype=np.float32)

    def act_greedily(self, observation: FloatArray) -> FloatArray:
        """Nothing."""
        return np.zeros((len(observation), self._actions), np.float32)

    def policy(self, unit: UnitIndex) -> tuple[FloatArray, ...]:
        """None: nobody plays."""
        return ()

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The parameters."""
        return {"parameters": self._parameters.copy()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """The parameters."""
        self._parameters[:] = state["parameters"]

    def fingerprint(self) -> str:
        """Equal everywhere."""
        return "sketch"


class IndependentSketch(Sketch):
    """The same where each row has samples of its own; see ``IndependentAlgorithm``."""

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
        """Keyed by the row, whatever the minibatch."""
        check_cancelled()
        return self._drawn(units, row, iteration)


@register("sketch")
@dataclass(frozen=True, slots=True, kw_only=True)
class SketchConfig:
    """No more than a batch size."""

    batch_size: int = 4
    """B, transitions in one minibatch."""

    def dimensions(self, agents: Sequence[AgentSpec]) -> Sketch:
        """Those of what is made."""
        return self.make(agents, seed=0, device="cpu")

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> Sketch:
        """Parameters begin as zeros."""
        return Sketch(agents, seed=seed)


@register("independent_sketch")
@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentSketchConfig(SketchConfig):
    """Of learners with samples of their own."""

    max_variance: float = 1.0
    """Some of the codes reach it with a few rows, others with all or never."""

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> IndependentSketch:
        """Parameters begin as zeros."""
        return IndependentSketch(agents, seed=seed, max_variance=self.max_variance)
