"""A game in a folder of its own, and a way to go to the folder."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Visit: TypeAlias = Callable[[Path], Path]
"""Goes to a folder, as a process that starts there."""

GAME = """
import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv
{imports}

class Game(ParallelEnv):
    metadata = {{"name": "game"}}
    possible_agents = ["a_0", "a_1"]

    def observation_space(self, agent):
        return Box(-1, 1, (1,))

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._each(np.zeros(1, np.float32)), self._each({{}})

    def step(self, actions):
        {step}
        return tuple(map(self._each, (np.zeros(1, np.float32), 0.0, False, True, {{}})))

    def _each(self, value):
        return dict.fromkeys(self.agents, value)


def make(level=1) -> ParallelEnv:
    return Game()
"""
RAN = "from pathlib import Path; Path(__file__).with_name('ran').touch()\n"
"""A module that leaves a trace of having run."""


def game(imports: str = "", step: str = "pass") -> str:
    return GAME.format(imports=imports, step=step)
