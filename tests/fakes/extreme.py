"""An environment of any magnitudes, which tests register as ``extreme``."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Continuous, Discrete, Environment, Step

AGENTS, OBSERVED = 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """Two agents; the first one sees and earns moderate numbers."""

    observed: float = 1.0
    """Magnitude of the second agent's observations."""
    paid: float = 1.0
    """Reward of the second agent."""
    continuous: bool = False
    """True for actions in a box."""
    horizon: int = 5
    """Steps of an episode."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """Make the copies; see ``EnvironmentConfig.make``."""
        return _ExtremeEnvironment(self, copies)


class _ExtremeEnvironment:
    """E copies, whose observations are drawn from the seeds of their episodes."""

    def __init__(self, config: Extreme, copies: int) -> None:
        action = Continuous((-1.0,), (1.0,)) if config.continuous else Discrete(2)
        self.agents: tuple[AgentSpec, ...] = tuple(
            AgentSpec(name=f"agent_{agent}", observation_size=OBSERVED, action=action)
            for agent in range(AGENTS)
        )
        self.copies, self._config = copies, config
        self._seeds, self._steps = np.zeros(copies, np.int64), np.zeros(copies, np.int64)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Begin episodes; see ``Environment.reset``."""
        self._seeds[list(copies)] = np.array(seeds) % 1000
        self._steps[list(copies)] = 0
        return self._observation()

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        self._steps += 1
        ended = self._steps >= self._config.horizon
        alive = np.repeat(~ended[:, None], AGENTS, axis=1)
        reward = np.tile([1.0, self._config.paid], (self.copies, 1))
        return Step(self._observation(), reward, ~alive, alive, ended)

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _observation(self) -> FloatArray:
        phase = self._seeds[:, None] + self._steps[:, None] + np.arange(AGENTS * OBSERVED)
        seen = np.cos(phase)
        seen[:, OBSERVED:] *= self._config.observed
        return np.asarray(seen, np.float32)
