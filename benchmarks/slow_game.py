"""A PettingZoo game whose every step takes a time, for ``collecting.py``."""

import time
from typing import Any

import numpy as np
import pettingzoo
from gymnasium.spaces import Box, Discrete


class SlowGame(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """Three agents that are paid for choosing action 1.

    Args:
        step_s: Time of a step, seconds, which the processor has for others.
        horizon: Steps of an episode.
    """

    def __init__(self, *, step_s: float = 0.01, horizon: int = 50) -> None:
        self.metadata, self.possible_agents = {"name": "slow"}, ["a", "b", "c"]
        self._step_s, self._horizon, self._steps = step_s, horizon, 0
        self._draws = np.random.default_rng(0)

    def observation_space(self, agent: str) -> Box:
        """Return a space of 18 entries, as in cooperative navigation of three agents."""
        return Box(-10, 10, (18,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        """Return the space of five moves."""
        return Discrete(5)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        self.agents, self._steps = [*self.possible_agents], 0
        self._draws = np.random.default_rng(seed)
        return self._seen(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Take the time of a step."""
        time.sleep(self._step_s)
        self._steps += 1
        paid = {agent: float(actions[agent] == 1) for agent in self.agents}
        over = dict.fromkeys(self.agents, self._steps == self._horizon)
        return self._seen(), paid, dict.fromkeys(self.agents, False), over, {}

    def _seen(self) -> dict[str, Any]:
        return {agent: self._draws.random(18, np.float32) for agent in self.agents}
