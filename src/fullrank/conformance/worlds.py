"""A small environment of continuous actions, for algorithms that train no others."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from fullrank.common.types import FloatArray

LENGTH = 8
"""Steps of an episode."""


class Gathering(ParallelEnv):  # type: ignore[misc]
    """Three agents on a line, each paid for being near the mean place of all."""

    metadata: ClassVar[Mapping[str, str]] = {"name": "gathering"}
    possible_agents: ClassVar[list[str]] = ["left", "middle", "right"]

    def __init__(self) -> None:
        self.agents: list[str] = []
        self._places: FloatArray = np.zeros(3, np.float32)
        self._steps = 0

    def observation_space(self, agent: str) -> Box:
        """Return the space of all places, the own one first."""
        return Box(-np.inf, np.inf, (3,))

    def action_space(self, agent: str) -> Box:
        """Return the space of moves."""
        return Box(-0.5, 0.5, (1,))

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin with random places."""
        self.agents, self._steps = [*self.possible_agents], 0
        self._places = np.random.default_rng(seed).uniform(-1, 1, 3).astype(np.float32)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, FloatArray]) -> tuple[Any, ...]:
        """Move every agent."""
        self._places += np.concatenate([actions[agent] for agent in self.agents])
        self._steps += 1
        over = self._steps == LENGTH
        seen = self._seen()
        away = np.abs(self._places - self._places.mean())
        rewards = {agent: -float(each) for agent, each in zip(self.agents, away, strict=True)}
        ended = dict.fromkeys(self.agents, False)
        info: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        cut = dict.fromkeys(self.agents, over)
        self.agents = [] if over else self.agents
        return seen, rewards, ended, cut, info

    def _seen(self) -> dict[str, FloatArray]:
        return {agent: np.roll(self._places, -i) for i, agent in enumerate(self.agents)}


def gathering() -> Gathering:
    """Make the environment."""
    return Gathering()
