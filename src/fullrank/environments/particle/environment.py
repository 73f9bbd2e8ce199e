"""What all particle scenarios share: episodes of a fixed length over a world of E copies."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from fullrank.environments.base import AgentSpec, Step
from fullrank.environments.particle.world import Array, Bodies, World
from fullrank.seeding import stream
from fullrank.types import FloatArray


class ParticleEnvironment(ABC):
    """An ``Environment`` whose agents all move; a scenario says where, what is seen, what pays.

    Nothing is terminal in these worlds: an episode ends at its horizon, which is a time limit.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], bodies: Bodies, *, copies: int, horizon: int
    ) -> None:
        self.agents = tuple(agents)
        self.copies = copies
        self.world = World(bodies, copies=copies)
        self._horizon = horizon
        self._steps = np.zeros(copies, dtype=np.int64)
        self._observation_size = sum(agent.observation_size for agent in agents)
        self._nobody = np.zeros((copies, len(agents)), dtype=bool)
        self._everybody = ~self._nobody
        self._nobody.flags.writeable = self._everybody.flags.writeable = False

    @abstractmethod
    def place(self, generator: np.random.Generator) -> Array:
        """Initial positions of one copy's entities, shape (2, n)."""

    @abstractmethod
    def observe(self, out: FloatArray) -> None:
        """Write what the agents see into ``out``, shape (sum of observation sizes, E)."""

    @abstractmethod
    def reward(self) -> Array:
        """What each agent earns in the present state, shape (M, E)."""

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``; agents start at rest."""
        if copies:
            starts = [self.place(stream(seed, "particle")) for seed in seeds]
            position = np.stack(starts, axis=-1)
            rest = np.zeros((2, len(self.agents), len(starts)))
            self.world.place(copies, position=position, velocity=rest)
            self._steps[copies] = 0
        return self.observation()

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``."""
        self.world.step(action.T.reshape(len(self.agents), 5, self.copies))
        self._steps += 1
        return Step(
            observation=self.observation(),
            reward=self.reward().T,
            terminated=self._nobody,
            alive=self._everybody,
            ended=self._steps >= self._horizon,
        )

    def observation(self) -> FloatArray:
        """The joint observation of the present state, shape (E, sum of observation sizes)."""
        seen = np.empty((self._observation_size, self.copies), dtype=np.float32)
        self.observe(seen)
        return np.ascontiguousarray(seen.T)

    def close(self) -> None:  # noqa: B027
        """Nothing is held."""
