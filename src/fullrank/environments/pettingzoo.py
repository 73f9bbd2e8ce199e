"""Any PettingZoo Parallel environment, given as ``package.module:factory``, in E instances.

Observations of any space that gymnasium can flatten are flattened. Actions are ``Discrete`` or
finite boxes of real numbers; action masks are not used. PettingZoo has no sides: agents of one
type, the part of the name before the number (``adversary_0``), form one side.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pettingzoo
from gymnasium.spaces import utils

from fullrank.common.errors import ConfigError, EnvironmentFailed
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Environment, Step, register
from fullrank.environments.spaces import Space, action_spec, pack_observation, unpack_action


@register("pettingzoo")
@dataclass(frozen=True, slots=True, kw_only=True)
class PettingZoo:
    """A factory of PettingZoo Parallel environments and its keyword arguments."""

    factory: str
    """For example ``mpe2.simple_spread_v3:parallel_env``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the factory."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """See ``EnvironmentConfig.make``."""
        build = _resolve(self.factory)
        instances = [_Instance(self.factory, build, self.arguments) for _ in range(copies)]
        own = len(instances[0].agents)
        if agents not in (0, own):
            raise ConfigError(
                f"{self.factory} has {own} agents with these arguments, but {agents} are asked "
                "for; leave the number of agents out, or set the factory's own argument for it"
            )
        return _PettingZooEnvironment(instances)


def _resolve(factory: str) -> Callable[..., Any]:
    module, _, name = factory.partition(":")
    if not module or not name:
        raise ConfigError(f"the factory {factory!r} is not of the form package.module:factory")
    with _blaming(factory, "cannot be imported"):
        build: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return build


@contextmanager
def _blaming(factory: str, what: str) -> Iterator[None]:
    """Re-raise errors of a foreign environment as one line that names it."""
    try:
        yield
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise EnvironmentFailed(f"{factory} {what}: {reason}") from error


class _PettingZooEnvironment:
    """E instances, stepped one after the other."""

    def __init__(self, instances: Sequence["_Instance"]) -> None:
        self.agents = tuple(agent.spec for agent in instances[0].agents)
        self.copies = len(instances)
        self._instances = instances
        size = sum(agent.observation_size for agent in self.agents)
        self._observation: FloatArray = np.zeros((self.copies, size), dtype=np.float32)
        self._alive = np.zeros((self.copies, len(self.agents)), dtype=bool)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``; the instances get these seeds."""
        observation = self._observation.copy()
        for seed, copy in zip(seeds, copies, strict=True):
            self._instances[copy].reset(seed, observation[copy])
            self._alive[copy] = True
        self._observation = observation
        return observation

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``."""
        everybody = self._alive.shape
        step = Step(
            observation=np.zeros_like(self._observation),
            reward=np.zeros(everybody),
            terminated=np.zeros(everybody, dtype=bool),
            alive=self._alive.copy(),
            ended=np.zeros(self.copies, dtype=bool),
        )
        for copy in np.flatnonzero(self._alive.any(axis=1)).tolist():
            self._instances[copy].step(action[copy], step, copy)
        step.ended[:] = ~step.alive.any(axis=1)
        self._observation, self._alive = step.observation, step.alive.copy()
        return step

    def close(self) -> None:
        """Close all instances."""
        for instance in self._instances:
            instance.close()


class _Instance:
    """One copy: a foreign environment, whose results are all checked."""

    def __init__(
        self, factory: str, build: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> None:
        self._factory = factory
        self._steps = 0
        with _blaming(factory, "cannot be used"):
            environment = build(**arguments)
            if not isinstance(environment, pettingzoo.ParallelEnv):
                kind = type(environment).__name__
                raise TypeError(f"{kind} is not a PettingZoo Parallel environment")
            self._environment = environment
            self.agents = _agents(environment)

    def reset(self, seed: int, observation: FloatArray) -> None:
        """Start an episode and write the joint observation, shape (sum of sizes,)."""
        self._steps = 0
        with _blaming(self._factory, f"failed to reset with seed {seed}"):
            seen, _ = self._environment.reset(seed=seed)
            absent = [a.name for a in self.agents if a.name not in self._environment.agents]
            if absent:
                raise ValueError(f"agents that join later are not supported: {absent}")
            for agent in self.agents:
                vector = pack_observation(agent.observation_space, seen[agent.name])
                observation[agent.observation] = vector

    def step(self, action: FloatArray, step: Step, copy: int) -> None:
        """Advance, and write row ``copy`` of ``step``, whose ``alive`` marks the acting agents."""
        self._steps += 1
        with _blaming(self._factory, f"failed in step {self._steps} of copy {copy}"):
            acting = [(i, a) for i, a in enumerate(self.agents) if step.alive[copy, i]]
            actions = {a.name: unpack_action(a.action_space, action[a.action]) for _, a in acting}
            seen, rewards, terminated, truncated, _ = self._environment.step(actions)
            for i, agent in acting:
                name = agent.name
                step.reward[copy, i] = rewards[name]
                step.terminated[copy, i] = terminated[name]
                step.alive[copy, i] = not (terminated[name] or truncated[name])
                if not terminated[name]:
                    vector = pack_observation(agent.observation_space, seen[name])
                    step.observation[copy, agent.observation] = vector
            if not np.isfinite(step.reward[copy]).all():
                raise ValueError("a reward is not finite")

    def close(self) -> None:
        """Close the foreign environment."""
        self._environment.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agent:
    """A foreign agent: its spaces, and its part of the packed arrays."""

    name: Any
    spec: AgentSpec
    observation_space: Space
    action_space: Space
    observation: slice
    action: slice


def _agents(environment: Any) -> list[_Agent]:
    agents: list[_Agent] = []
    seen = acts = 0
    for name in environment.possible_agents:
        observations, actions = environment.observation_space(name), environment.action_space(name)
        spec = AgentSpec(
            name=str(name),
            observation_size=int(utils.flatdim(observations)),
            action=action_spec(actions),
            side=str(name).rstrip("0123456789").rstrip("_") or "team",
        )
        agents.append(
            _Agent(
                name=name,
                spec=spec,
                observation_space=observations,
                action_space=actions,
                observation=slice(seen, seen + spec.observation_size),
                action=slice(acts, acts + spec.action.size),
            )
        )
        seen, acts = seen + spec.observation_size, acts + spec.action.size
    return agents
