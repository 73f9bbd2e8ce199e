"""A PettingZoo game with a fault of choice, imported by the processes that play it."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pettingzoo
from gymnasium.spaces import Box, Discrete


class FaultyGame(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """Two agents; the episode that starts from ``seed`` has a fault in its third step."""

    def __init__(self, *, fault: str = "", seed: int = 0, path: str = "") -> None:
        self.metadata, self.possible_agents = {"name": "faulty"}, ["left", "right"]
        self._fault, self._faulty, self._path = fault, seed, path
        self._steps, self._seed = 0, 0

    def observation_space(self, agent: str) -> Box:
        """Return the space of two entries."""
        return Box(-10, 10, (2,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        """Return the space of two actions."""
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode of five steps."""
        self.agents, self._steps, self._seed = [*self.possible_agents], 0, seed or 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Pay each agent 1, or fail."""
        self._steps += 1
        seen = {agent: np.full(2, self._steps, np.float32) for agent in self.agents}
        reward = dict.fromkeys(self.agents, 1.0)
        if self._steps == 3 and self._seed == self._faulty:
            self._fail(reward)
        over = dict.fromkeys(self.agents, self._steps == 5)
        return seen, reward, over, dict.fromkeys(self.agents, False), {}

    def _fail(self, reward: dict[str, float]) -> None:
        match self._fault:
            case "raises":
                raise RuntimeError("the engine stalls")
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does without memory
            case "leaks":
                reward["left"] = float(np.ones(2**58)[0])
            case "prints":
                print("\x1b[31m", "noise" * 2**16)
            case "hangs":
                Path(self._path).touch()
                while True:
                    continue
