"""Any registered gymnasium environment of a team, in E instances.

Such an environment has ``Tuple`` spaces with a part for each agent: actions that are ``Discrete``
or finite boxes of real numbers, and observations of any space that gymnasium can flatten. Its
reward is a number, which all agents share, or a list with an entry for each agent. Level-based
foraging (``lbforaging``) and the multi-robot warehouse (``rware``) are of this form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Tuple, utils

from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Environment, register
from fullrank.environments.instances import (
    CopyStep,
    Instances,
    naming,
    naming_agent,
    require_agents,
)
from fullrank.environments.local_code import search_working_directory
from fullrank.environments.spaces import action_spec, pack_observation, unpack_action


@register("gymnasium")
@dataclass(frozen=True, slots=True, kw_only=True)
class Gymnasium:
    """The id of a gymnasium environment and its keyword arguments."""

    id: str
    """Registered id after the module that registers it, for example
    `lbforaging:Foraging-8x8-2p-2f-coop-v3`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        shared = _pays_a_number(self.id, self.arguments)
        instances = [
            _GymnasiumInstance(self.id, self.arguments, shared_reward=shared) for _ in range(copies)
        ]
        require_agents(self.id, agents, own=len(instances[0].agents))
        return Instances(instances)


def _make(name: str, arguments: Mapping[str, Any]) -> Any:
    """Make one environment, without checks that refuse lists of rewards."""
    search_working_directory()
    with naming(name, "cannot be used"):
        return gymnasium.make(name, disable_env_checker=True, **arguments)


def _pays_a_number(name: str, arguments: Mapping[str, Any]) -> bool:
    """Try a step in an environment of its own, since no space describes rewards."""
    environment = _make(name, arguments)
    with naming(name, "cannot be used"):
        environment.reset(seed=0)
        environment.action_space.seed(0)
        _, reward, *_ = environment.step(environment.action_space.sample())
        environment.close()
    return np.ndim(reward) == 0


class _GymnasiumInstance:
    """One copy: a foreign environment, whose results are all checked."""

    state_size: int | None = None

    def __init__(self, name: str, arguments: Mapping[str, Any], *, shared_reward: bool) -> None:
        self.name, self.shared_reward = name, shared_reward
        self._arguments, self.steps, self.seed = arguments, 0, 0
        self._environment, self._fresh = _make(name, arguments), True
        with naming(name, "cannot be used"):
            self._observations = _parts(self._environment.observation_space, "observation")
            self._actions = _parts(self._environment.action_space, "action")
            if len(self._observations) != len(self._actions):
                raise TypeError("its observation and action spaces have different numbers of parts")
            pairs = enumerate(zip(self._observations, self._actions, strict=True))
            self.agents = tuple(
                AgentSpec(
                    name=f"agent_{i}",
                    observation_size=int(utils.flatdim(observation)),
                    action=action_spec(action),
                )
                for i, (observation, action) in pairs
            )
        stops = np.cumsum([agent.action.size for agent in self.agents]).tolist()
        self._places = [slice(*ends) for ends in zip([0, *stops], stops, strict=False)]
        self._all = np.ones(stops[-1], dtype=bool)

    def reset(self, seed: int) -> tuple[FloatArray, BoolArray]:
        """See ``Instance.reset``; every action is available.

        Every episode has an environment of its own: a package may keep something over a reset, as
        lbforaging 2.0.0 keeps the places of its players, and a seed then fixes no episode.
        """
        self.steps, self.seed = 0, seed
        if not self._fresh:
            self.close()
            self._environment = _make(self.name, self._arguments)
        self._fresh = False
        with naming(self.name, f"failed to reset with seed {seed}"):
            observations, _ = self._environment.reset(seed=seed)
            return np.concatenate(self._vectors(observations)), self._all

    def step(self, action: FloatArray, alive: BoolArray) -> CopyStep:
        """Step the instance; see ``Instance.step``."""
        self.steps += 1
        with naming(self.name, f"failed in step {self.steps} of seed {self.seed}"):
            pairs = zip(self._actions, self._places, strict=True)
            actions = tuple(unpack_action(space, action[part]) for space, part in pairs)
            observations, reward, *ends, _ = self._environment.step(actions)
            terminated, truncated = (np.logical_and(alive, end, out=alive.copy()) for end in ends)
            vectors = self._vectors(observations)
            for agent in np.flatnonzero(terminated | ~alive):
                vectors[agent] = np.zeros_like(vectors[agent])
            return CopyStep(
                observation=np.concatenate(vectors),
                reward=self._rewards(reward) * alive,
                terminated=terminated,
                alive=alive & ~(terminated | truncated),
                available=self._all,
            )

    def _vectors(self, observations: Any) -> list[FloatArray]:
        vectors = []
        for agent, space, own in zip(self.agents, self._observations, observations, strict=True):
            with naming_agent(agent.name):
                vectors.append(pack_observation(space, own))
        return vectors

    def _rewards(self, reward: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the reward of each agent, shape (M,)."""
        shape = () if self.shared_reward else (len(self.agents),)
        if np.shape(reward) != shape:
            raise ValueError(f"a reward has shape {np.shape(reward)}, not {shape}")
        if wrong := np.flatnonzero(~np.isfinite(reward)).tolist():
            raise ValueError(f"{self.agents[wrong[0]].name}: a reward is not finite")
        return np.broadcast_to(np.asarray(reward, dtype=np.float64), (len(self.agents),))

    def state(self) -> FloatArray:
        """See ``Instance.state``; gymnasium environments have none."""
        return np.empty(0, dtype=np.float32)

    def close(self) -> None:
        """Close the foreign environment."""
        self._environment.close()


def _parts(space: Any, what: str) -> tuple[Any, ...]:
    """Return each agent's part of a joint space.

    Raises:
        TypeError: The space is not a ``Tuple``.
    """
    if not isinstance(space, Tuple):
        raise TypeError(
            f"the {what} space {space} is not a Tuple with a part for each agent; "
            "environments of one agent are not supported"
        )
    return space.spaces
