"""Fullrank's environments as PettingZoo Parallel environments, for use by other libraries.

``fullrank.environments.parallel:parallel_env`` is a factory in PettingZoo's sense, with the name of
the environment as an argument.
"""

from typing import Any

import numpy as np
import pettingzoo
from gymnasium.spaces import Box

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import Environment, make_environment
from fullrank.environments.capabilities import (
    Masked,
    next_available_of,
    shares_reward,
    state_of,
    state_size,
)
from fullrank.environments.foreign_agents import Space, action_space, observation_space, pack_action


class ParallelFace(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """One copy of an ``Environment``, agent by agent in dictionaries.

    ``reset(seed=s)`` starts the episode that ``Environment.reset`` starts from s; without a seed
    the next episode of the last seed given follows (of seed 0 at first). The infos of a ``Masked``
    environment hold the ``action_mask`` of each agent. ``shared_reward`` is true where all agents
    always receive the same reward, which a return then counts once.
    """

    def __init__(self, environment: Environment, *, name: str) -> None:
        if environment.copies != 1:
            raise ConfigError(f"a ParallelFace has one copy, not {environment.copies}")
        self.metadata = {"name": name, "render_modes": []}
        self.possible_agents = [agent.name for agent in environment.agents]
        self.agents: list[str] = []
        self.render_mode = None
        self.shared_reward = shares_reward(environment)
        self._environment = environment
        self._observation_spaces = {a.name: observation_space(a) for a in environment.agents}
        self._action_spaces = {a.name: action_space(a) for a in environment.agents}
        self.state_space = Box(-np.inf, np.inf, shape=(state_size(environment),), dtype=np.float32)
        sizes = [agent.observation_size for agent in environment.agents]
        self._joint: FloatArray = np.zeros((1, sum(sizes)), dtype=np.float32)
        self._seed, self._episode = 0, 0

    def observation_space(self, agent: str) -> Box:
        """The agent's observations: an unbounded box."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        """``Discrete`` (also for agents that take relaxed actions), or a box."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, FloatArray], dict[str, dict[str, Any]]]:
        """Start an episode; there are no options."""
        if seed is None:
            self._episode += 1
            start = derive(self._seed, "parallel_episode", self._episode)
        else:
            self._seed, self._episode, start = seed, 0, seed
        self._joint = self._environment.reset([start], [0])
        self.agents = list(self.possible_agents)
        return self._by_agent(self._split(self._joint[0])), self._infos()

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        dict[str, FloatArray],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Step all living agents; the dictionaries cover those that acted or come back."""
        step = self._environment.step(self._pack(actions))
        truncated: BoolArray = (step.ended[:, None] | ~step.alive) & ~step.terminated
        self._joint = step.observation
        lives = (step.alive & ~step.ended[:, None])[0].tolist()
        living = [agent for agent, yes in zip(self.possible_agents, lives, strict=True) if yes]
        self.agents = [agent for agent in self.possible_agents if agent in {*self.agents, *living}]
        observation = self._by_agent(self._split(self._joint[0]))
        reward = self._by_agent(step.reward[0].tolist())
        terminated = self._by_agent(step.terminated[0].tolist())
        left = self._by_agent(truncated[0].tolist())
        infos = self._infos()
        self.agents = living
        return observation, reward, terminated, left, infos

    def state(self) -> FloatArray:
        """Return the state, shape (S,); the joint observation if the environment has none."""
        (state,) = state_of(self._environment, self._joint)
        return np.asarray(state)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _by_agent(self, values: list[Any]) -> dict[str, Any]:
        named = zip(self.possible_agents, values, strict=True)
        return {agent: value for agent, value in named if agent in self.agents}

    def _infos(self) -> dict[str, dict[str, Any]]:
        """Return the infos of the ``agents``: their action masks, if any."""
        if not isinstance(self._environment, Masked):
            return {agent: {} for agent in self.agents}
        sizes = [agent.action.size for agent in self._environment.agents]
        masks = np.split(
            next_available_of(self._environment)[0].astype(np.int8), np.cumsum(sizes)[:-1]
        )
        return self._by_agent([{"action_mask": mask} for mask in masks])

    def _split(self, joint: FloatArray) -> list[FloatArray]:
        sizes = [agent.observation_size for agent in self._environment.agents]
        return np.split(joint, np.cumsum(sizes)[:-1])

    def _pack(self, actions: dict[str, Any]) -> FloatArray:
        parts = [
            pack_action(agent, actions[agent.name])
            if agent.name in self.agents
            else np.zeros(agent.action.size, dtype=np.float32)
            for agent in self._environment.agents
        ]
        return np.concatenate(parts)[None]


def parallel_env(name: str, *, agents: int = 0, **params: Any) -> ParallelFace:
    """Any registered environment as a PettingZoo Parallel environment.

    Args:
        name: For example ``"cooperative_navigation"``.
        agents: M, or 0 for the environment's own number.
        **params: The environment's configuration.
    """
    return ParallelFace(make_environment(name, agents=agents, copies=1, **params), name=name)
