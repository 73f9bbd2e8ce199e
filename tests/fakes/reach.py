"""Two arms that are to reach what they see, which tests register as ``reach``."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Continuous, Environment, Step

AGENTS, LOW, HIGH, HORIZON = 2, -1.0, 3.0, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Each agent loses the square of the distance between its action and its target."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """Make the copies; see ``EnvironmentConfig.make``."""
        return _ReachEnvironment(copies)


class _ReachEnvironment:
    """E copies, whose targets are drawn from the seeds of their episodes."""

    def __init__(self, copies: int) -> None:
        self.agents: tuple[AgentSpec, ...] = tuple(
            AgentSpec(name=f"arm_{arm}", observation_size=1, action=Continuous((LOW,), (HIGH,)))
            for arm in range(AGENTS)
        )
        self.copies = copies
        self._targets = np.zeros((copies, AGENTS), np.float32)
        self._steps = np.zeros(copies, np.int64)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Begin episodes; see ``Environment.reset``."""
        for seed, copy in zip(seeds, copies, strict=True):
            self._targets[copy] = np.random.default_rng(seed).uniform(LOW, HIGH, AGENTS)
        self._steps[list(copies)] = 0
        return self._targets.copy()

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        assert ((action >= LOW) & (action <= HIGH)).all()
        self._steps += 1
        ended = self._steps >= HORIZON
        alive = np.repeat(~ended[:, None], AGENTS, axis=1)
        loss = np.square(action.astype(np.float64) - self._targets)
        return Step(self._targets.copy(), -loss, ~alive, alive, ended)

    def close(self) -> None:
        """Do nothing: no resource is held."""
