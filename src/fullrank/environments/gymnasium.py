"""Any registered gymnasium environment of a team, in E instances.

Such an environment has ``Tuple`` spaces with a part for each agent: actions that are ``Discrete``
or finite boxes of real numbers, and observations of any space that gymnasium can flatten, in which
an entry ``action_mask`` of a ``Dict`` is the agent's mask. Its reward is a number, which all agents
share, or a list with an entry for each agent. Level-based foraging (``lbforaging``) and the
multi-robot warehouse (``rware``) are of this form.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Tuple

from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import Environment, register
from fullrank.environments.capabilities import permitted_actions
from fullrank.environments.foreign_agents import (
    MASK,
    all_zero,
    foreign_agents,
    joint_size,
    keys_of,
    suggesting_masks,
)
from fullrank.environments.instances import (
    CopyStep,
    Instances,
    naming,
    require_agents,
)
from fullrank.environments.local_code import search_working_directory


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
        return Instances(instances, masked=instances[0].masked)


def _make(name: str, arguments: Mapping[str, Any]) -> Any:
    """Make one environment, without checks that refuse lists of rewards."""
    search_working_directory()
    with naming(name, "cannot be used"):
        environment = gymnasium.make(name, disable_env_checker=True, **arguments)
        _refuse_dictionaries(environment)
    return environment


def _pays_a_number(name: str, arguments: Mapping[str, Any]) -> bool:
    """Try a step in an environment of its own, since no space describes rewards."""
    with closing(_GymnasiumInstance(name, arguments, shared_reward=False)) as instance:
        return np.ndim(instance.first_reward()) == 0


class _GymnasiumInstance:
    """One copy: a foreign environment, whose results are all checked."""

    state_size: int | None = None

    def __init__(self, name: str, arguments: Mapping[str, Any], *, shared_reward: bool) -> None:
        self.name, self.shared_reward = name, shared_reward
        self._arguments, self.steps, self.seed = arguments, 0, 0
        self._environment, self._fresh = _make(name, arguments), True
        with naming(name, "cannot be used"):
            observations = _parts(self._environment.observation_space, "observation")
            actions = _parts(self._environment.action_space, "action")
            if len(observations) != len(actions):
                raise TypeError("its observation and action spaces have different numbers of parts")
            names = [f"agent_{i}" for i in range(len(actions))]
            self._agents = foreign_agents(names, observations, actions, ["team"] * len(actions))
        self.agents = tuple(agent.spec for agent in self._agents)
        self.masked = any(agent.masked for agent in self._agents)
        self.ignored = {
            f"{agent.name} is told {key}, which looks like a mask of actions; call it {MASK}"
            for agent in self._agents
            for key in suggesting_masks(keys_of(agent.observation_space))
        }

    def reset(self, seed: int) -> tuple[FloatArray, BoolArray]:
        """See ``Instance.reset``.

        Every episode has an environment of its own: a package may keep something over a reset, as
        lbforaging 2.0.0 keeps the places of its players, and a seed then fixes no episode.
        """
        self.steps, self.seed = 0, seed
        if not self._fresh:
            self.close()
            self._environment = _make(self.name, self._arguments)
        self._fresh = False
        with naming(self.name, f"failed to reset with seed {seed}"):
            observations, info = self._environment.reset(seed=seed)
            self._note(info)
            return self._seen(observations, np.ones(len(self._agents), dtype=bool))

    def step(self, action: FloatArray, alive: BoolArray) -> CopyStep:
        """Step the instance; see ``Instance.step``."""
        self.steps += 1
        with naming(self.name, f"failed in step {self.steps} of seed {self.seed}"):
            actions = tuple(agent.choice(action) for agent in self._agents)
            observations, reward, *ends, info = self._environment.step(actions)
            over, left = (np.logical_or(end, np.zeros_like(alive)) for end in ends)
            terminated, after = alive & over, ~(over | left)
            self._note(info)
            vector, available = self._seen(observations, after | alive & ~terminated)
            return CopyStep(
                observation=vector,
                reward=self._rewards(reward, alive),
                terminated=terminated,
                alive=after,
                available=available,
            )

    def first_reward(self) -> Any:
        """Return the reward of the first permitted actions in an episode of seed 0."""
        _, available = self.reset(0)
        first = permitted_actions(
            self.agents, np.zeros((1, available.size), np.float32), available[None]
        )
        with naming(self.name, "cannot be used"):
            actions = tuple(agent.choice(first[0]) for agent in self._agents)
            _, reward, *_ = self._environment.step(actions)
        return reward

    def _seen(self, observations: Any, shown: BoolArray) -> tuple[FloatArray, BoolArray]:
        """Return what the agents that are shown observe and may do."""
        joint, available = all_zero(self._agents), np.ones(joint_size(self._agents)[1], dtype=bool)
        for agent, own, seen in zip(self._agents, observations, shown, strict=True):
            if seen:
                joint[agent.observation] = agent.vector(own)
                if agent.masked:
                    available[agent.action] = agent.available(own)
        return joint, available

    def _note(self, info: Mapping[str, Any]) -> None:
        """Refuse masks in an info, and note keys that look like them.

        Raises:
            ValueError: There is an ``action_mask``.
        """
        advice = f"give each agent's observation an entry {MASK}"
        if MASK in info:
            raise ValueError(f"the info has an {MASK}, which is not read; {advice}")
        self.ignored |= {
            f"{key} in the info looks like a mask of actions; {advice}"
            for key in suggesting_masks(info)
        }

    def _rewards(self, reward: Any, alive: BoolArray) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the reward of each agent, shape (M,)."""
        shape = () if self.shared_reward else (len(self.agents),)
        if np.shape(reward) != shape:
            raise ValueError(f"a reward has shape {np.shape(reward)}, not {shape}")
        if not (finite := np.isfinite(reward)).all():
            name = self.agents[int(finite.argmin())].name
            raise ValueError(f"{name}: a reward is not finite")
        paid = np.broadcast_to(np.asarray(reward, dtype=np.float64), (len(self.agents),))
        if not self.shared_reward and paid[~alive].any():
            self.ignored.add(
                "agents are paid in steps in which they do not act; no return counts it"
            )
        return paid if self.shared_reward else paid * alive

    def state(self) -> FloatArray:
        """See ``Instance.state``; gymnasium environments have none."""
        return np.empty(0, dtype=np.float32)

    def close(self) -> None:
        """Close the foreign environment."""
        with naming(self.name, "failed to close"):
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


def _refuse_dictionaries(environment: Any) -> None:
    """Raise ``TypeError`` for a team in dictionaries, as RLlib has them."""
    seen, acts = environment.observation_space, environment.action_space
    if isinstance(seen, Dict) and isinstance(acts, Dict) and {*seen} == {*acts}:
        raise TypeError(
            f"its spaces are Dicts by agent, {[*acts]}, and this adapter takes Tuples; "
            "dictionaries by agent are PettingZoo's form: derive it from ParallelEnv, and name it "
            "by package.module:Class"
        )
