"""Any PettingZoo Parallel environment, given as ``package.module:factory``, in E instances.

Observations of any space that gymnasium can flatten are flattened. Actions are ``Discrete`` or
finite boxes of real numbers. Action masks are read from observations of the form
``{"observation": ..., "action_mask": ...}``, else from ``infos[agent]["action_mask"]``. The state
is that of ``state()`` where the environment has a ``state_space``. PettingZoo has no sides: agents
of one type, the part of the name before the number (``adversary_0``), form one side.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_origin, get_type_hints

import numpy as np
import pettingzoo
from gymnasium import spaces
from gymnasium.spaces import utils

from fullrank.common.errors import ConfigError
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
from fullrank.environments.spaces import (
    Space,
    action_spec,
    pack_mask,
    pack_observation,
    unpack_action,
)

MASK = "action_mask"
"""Key of an agent's action mask in its observation or its info."""
FACTORY = "parallel_env"
"""Name by which PettingZoo's modules call their factory, which may be of any type."""
PARALLEL = pettingzoo.ParallelEnv.__name__


@register("pettingzoo")
@dataclass(frozen=True, slots=True, kw_only=True)
class PettingZoo:
    """A factory of PettingZoo Parallel environments and its keyword arguments."""

    factory: str
    """For example ``mpe2.simple_spread_v3:parallel_env``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the factory."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        build = _resolve(self.factory)
        instances = [
            _PettingZooInstance(self.factory, build, self.arguments) for _ in range(copies)
        ]
        require_agents(self.factory, agents, own=len(instances[0].agents))
        trial = _PettingZooInstance(self.factory, build, self.arguments)
        return Instances(instances, masked=trial.offers_masks())


def _resolve(factory: str) -> Callable[..., Any]:
    module, _, name = factory.partition(":")
    if not module or not name:
        raise ConfigError(f"the factory {factory!r} is not of the form package.module:factory")
    search_working_directory()
    with naming(factory, "cannot be imported"):
        build: Callable[..., Any] = getattr(importlib.import_module(module), name)
    with naming(factory, "is not called"):
        if name != FACTORY and not _makes_environments(build):
            raise TypeError(
                "it does not say that it makes PettingZoo Parallel environments; annotate what it "
                f"returns with ParallelEnv, or name it {FACTORY}"
            )
    return build


def _makes_environments(build: Any) -> bool:
    """Return whether a callable is a class of environments, or is annotated to return one."""
    made = build
    if not isinstance(build, type):
        try:
            made = get_type_hints(build).get("return")
        except (NameError, AttributeError):  # a name that is imported for type checkers alone
            said = getattr(build, "__annotations__", {}).get("return")
            return str(said).partition("[")[0].endswith(PARALLEL)
        except TypeError:  # no function
            return False
    made = get_origin(made) or made
    return isinstance(made, type) and issubclass(made, pettingzoo.ParallelEnv)


class _PettingZooInstance:
    """One copy: a foreign environment, whose results are all checked."""

    shared_reward = False

    def __init__(
        self, factory: str, build: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> None:
        self.name = factory
        self.steps = self.seed = 0
        with naming(factory, "cannot be used"):
            environment = build(**arguments)
            if not isinstance(environment, pettingzoo.ParallelEnv):
                kind = type(environment).__name__
                raise TypeError(f"{kind} is not a PettingZoo Parallel environment")
            self._environment = environment
            self._parts = _parts(environment)
            self._state_space: Any = getattr(environment, "state_space", None)
        self.agents = tuple(part.spec for part in self._parts)
        self.state_size = None if self._state_space is None else utils.flatdim(self._state_space)

    def offers_masks(self) -> bool:
        """Try a reset, since no space describes infos; the instance is closed."""
        with naming(self.name, "failed to reset with seed 0"):
            _, infos = self._environment.reset(seed=0)
            self._environment.close()
        told = any(MASK in (info or {}) for info in infos.values())
        return told or any(part.masked for part in self._parts)

    def reset(self, seed: int) -> tuple[FloatArray, BoolArray]:
        """See ``Instance.reset``."""
        self.steps, self.seed = 0, seed
        with naming(self.name, f"failed to reset with seed {seed}"):
            observations, infos = self._environment.reset(seed=seed)
            absent = [p.name for p in self._parts if p.name not in self._environment.agents]
            if absent:
                raise ValueError(f"agents that join later are not supported: {absent}")
            shown = [(part, part.own(observations, "observation")) for part in self._parts]
            vectors = [part.vector(observation) for part, observation in shown]
            masks = [part.available(observation, infos) for part, observation in shown]
        return np.concatenate(vectors), np.concatenate(masks)

    def step(self, action: FloatArray, alive: BoolArray) -> CopyStep:
        """Step the instance; see ``Instance.step``."""
        self.steps += 1
        with naming(self.name, f"failed in step {self.steps} of seed {self.seed}"):
            acting = [(i, self._parts[i]) for i in np.flatnonzero(alive)]
            actions = {p.name: unpack_action(p.action_space, action[p.action]) for _, p in acting}
            observations, rewards, terminated, truncated, infos = self._environment.step(actions)
            outcome = self._blank()
            if strangers := observations.keys() - {part.name for part in self._parts}:
                raise ValueError(f"{min(strangers)} is not one of its possible_agents")
            for i, part in acting:
                outcome.reward[i] = part.own(rewards, "reward")
                outcome.terminated[i] = over = part.own(terminated, "termination")
                outcome.alive[i] = not (over or part.own(truncated, "truncation"))
                if not over:
                    observation = part.own(observations, "observation")
                    outcome.observation[part.observation] = part.vector(observation)
                    outcome.available[part.action] = part.available(observation, infos)
            if wrong := np.flatnonzero(~np.isfinite(outcome.reward)).tolist():
                raise ValueError(f"{self._parts[wrong[0]].name}: a reward is not finite")
        return outcome

    def _blank(self) -> CopyStep:
        """Return an outcome without living agents, to be filled in."""
        agents, last = len(self._parts), self._parts[-1]
        return CopyStep(
            observation=np.zeros(last.observation.stop, dtype=np.float32),
            reward=np.zeros(agents),
            terminated=np.zeros(agents, dtype=bool),
            alive=np.zeros(agents, dtype=bool),
            available=np.ones(last.action.stop, dtype=bool),
        )

    def state(self) -> FloatArray:
        """Return the global state; see ``Instance.state``."""
        with naming(self.name, f"has no state after step {self.steps}"):
            return pack_observation(self._state_space, self._environment.state())

    def close(self) -> None:
        """Close the foreign environment."""
        self._environment.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A foreign agent: its spaces, and its part of the packed arrays."""

    name: Any
    spec: AgentSpec
    observation_space: Space
    action_space: Space
    masked: bool
    """True if observations are dictionaries that hold the mask."""
    observation: slice
    action: slice

    def own(self, answer: Mapping[Any, Any], what: str) -> Any:
        """Return the agent's part of an answer.

        Raises:
            ValueError: There is none.
        """
        if self.name not in answer:
            raise ValueError(f"{self.name}: there is no {what}")
        return answer[self.name]

    def vector(self, observation: Any) -> FloatArray:
        """Return the agent's observation as a vector."""
        with naming_agent(self.spec.name):
            own = observation["observation"] if self.masked else observation
            return pack_observation(self.observation_space, own)

    def available(self, observation: Any, infos: Mapping[Any, Any]) -> BoolArray:
        """Return the actions that the agent may choose, as a vector."""
        holder = observation if self.masked else infos.get(self.name) or {}
        return pack_mask(self.action_space, holder.get(MASK))


def _parts(environment: Any) -> list[_Part]:
    parts: list[_Part] = []
    seen = acts = 0
    for name in environment.possible_agents:
        observations, actions = environment.observation_space(name), environment.action_space(name)
        masked = isinstance(observations, spaces.Dict) and {*observations} == {"observation", MASK}
        if masked:
            observations = observations["observation"]
        spec = AgentSpec(
            name=str(name),
            observation_size=int(utils.flatdim(observations)),
            action=action_spec(actions),
            side=str(name).rstrip("0123456789").rstrip("_") or "team",
        )
        parts.append(
            _Part(
                name=name,
                spec=spec,
                observation_space=observations,
                action_space=actions,
                masked=masked,
                observation=slice(seen, seen + spec.observation_size),
                action=slice(acts, acts + spec.action.size),
            )
        )
        seen, acts = seen + spec.observation_size, acts + spec.action.size
    return parts
