"""Any PettingZoo Parallel environment, given as ``package.module:factory``, in E instances.

Observations of any space that gymnasium can flatten are flattened. Actions are ``Discrete`` or
finite boxes of real numbers. Action masks are entries ``action_mask`` of ``Dict`` observations, or
of infos. The state is that of ``state()`` where the environment has a ``state_space``. Sides are
those of an attribute ``sides``, a mapping from agents to names; without it agents of one type, the
part of the name before the number (``adversary_0``), form one side.

An agent that terminated or was truncated lives again where it is among the environment's ``agents``
after a step that answers with its observation and neither terminates nor truncates it.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_origin, get_type_hints

import numpy as np
import pettingzoo
from gymnasium.spaces import utils

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import GYMNASIUM_ID, Environment, register
from fullrank.environments.foreign_agents import (
    MASK,
    ForeignAgent,
    all_zero,
    foreign_agents,
    joint_size,
    keys_of,
    pack_observation,
    suggesting_masks,
)
from fullrank.environments.instances import (
    CopyStep,
    Instances,
    naming,
    require_agents,
)
from fullrank.environments.local_code import search_working_directory

PARALLEL, TURN_TAKING = "ParallelEnv", "AECEnv"
"""Names of PettingZoo's base classes."""
FACTORY = "parallel_env"
"""Name by which PettingZoo's modules call their factory, which may be of any type."""
TURNS = ("env", "raw_env")
"""Names by which PettingZoo's modules call their factories of turn-based environments."""
TURN_BASED = (
    "it is turn-based (AEC), and Fullrank steps all agents together; name a factory of Parallel "
    "environments, or return pettingzoo.utils.aec_to_parallel(environment) where agents may act "
    "together"
)


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
        masked = trial.offers_masks()
        for instance in instances:
            instance.masked = masked
        instances[0].ignored |= trial.ignored
        return Instances(instances, masked=masked)


def _resolve(factory: str) -> Callable[..., Any]:
    module, _, name = factory.partition(":")
    if not module or not name:
        raise ConfigError(f"the factory {factory!r} is not of the form package.module:factory")
    if GYMNASIUM_ID.search(name):
        raise ConfigError(
            f"{factory} is the id of a gymnasium environment; run it by --env gymnasium --set "
            f"environment.id={factory}"
        )
    search_working_directory()
    with naming(factory, "cannot be imported"):
        imported = importlib.import_module(module)
        build: Callable[..., Any] = getattr(imported, name)
    with naming(factory, "is not called"):
        kind = _made_by(build)
        turns = kind == TURN_TAKING or (not kind and name in TURNS)
        if turns and hasattr(imported, FACTORY):
            raise TypeError(f"it is turn-based (AEC); the Parallel form is {module}:{FACTORY}")
        if turns:
            raise TypeError(TURN_BASED)
        if name != FACTORY and kind != PARALLEL:
            raise TypeError(
                "it does not say that it makes PettingZoo Parallel environments; annotate what it "
                f"returns with ParallelEnv, or name it {FACTORY}"
            )
    return build


def _made_by(build: Any) -> str:
    """Return ``ParallelEnv`` or ``AECEnv``, if a callable is a class of it or annotated so."""
    made = build
    if not isinstance(build, type):
        try:
            made = get_type_hints(build).get("return")
        except (NameError, AttributeError):  # a name that is imported for type checkers alone
            said = str(getattr(build, "__annotations__", {}).get("return")).partition("[")[0]
            return next((kind for kind in (PARALLEL, TURN_TAKING) if said.endswith(kind)), "")
        except TypeError:  # no function
            return ""
    made = get_origin(made) or made
    if not isinstance(made, type):
        return ""
    if issubclass(made, pettingzoo.ParallelEnv):
        return PARALLEL
    return TURN_TAKING if issubclass(made, pettingzoo.AECEnv) else ""


class _Answer(NamedTuple):
    """Results of a step, each by agent."""

    observations: Mapping[Any, Any]
    rewards: Mapping[Any, Any]
    terminated: Mapping[Any, Any]
    truncated: Mapping[Any, Any]
    infos: Mapping[Any, Any]


class _PettingZooInstance:
    """One copy: a foreign environment, whose results are all checked.

    Attributes:
        masked: False if no action was forbidden in a trial, and none may be.
    """

    shared_reward, masked = False, True

    def __init__(
        self, factory: str, build: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> None:
        self.name = factory
        self.steps = self.seed = 0
        self.ignored: set[str] = set()
        with naming(factory, "cannot be used"):
            environment = build(**arguments)
            if isinstance(environment, pettingzoo.AECEnv):
                raise TypeError(TURN_BASED)
            if not isinstance(environment, pettingzoo.ParallelEnv):
                kind = type(environment).__name__
                raise TypeError(f"{kind} is not a PettingZoo Parallel environment")
            self._environment = environment
            names = environment.possible_agents
            self._agents = foreign_agents(
                names,
                [environment.observation_space(name) for name in names],
                [environment.action_space(name) for name in names],
                _sides(environment),
            )
            self._state_space: Any = getattr(environment, "state_space", None)
        self.agents = tuple(agent.spec for agent in self._agents)
        self.state_size = None if self._state_space is None else utils.flatdim(self._state_space)

    def offers_masks(self) -> bool:
        """Try a reset, since no space describes infos; the instance is closed."""
        with naming(self.name, "failed to reset with seed 0"):
            _, infos = self._environment.reset(seed=0)
        self.close()
        for agent in self._agents:
            keys = [*keys_of(agent.observation_space), *(infos.get(agent.name) or {})]
            self.ignored |= {
                f"{agent.name} is told {key}, which looks like a mask of actions; call it {MASK}"
                for key in suggesting_masks(keys)
            }
        told = any(MASK in (info or {}) for info in infos.values())
        return told or any(agent.masked for agent in self._agents)

    def reset(self, seed: int) -> tuple[FloatArray, BoolArray]:
        """See ``Instance.reset``."""
        self.steps, self.seed = 0, seed
        with naming(self.name, f"failed to reset with seed {seed}"):
            observations, infos = self._environment.reset(seed=seed)
            self._require_known(self._environment.agents)
            absent = [a.name for a in self._agents if a.name not in self._environment.agents]
            if absent:
                raise ValueError(
                    f"agents that join later or take turns are not supported: {absent}; let all "
                    "begin the episode"
                )
            shown = [(agent, _own(agent, observations, "observation")) for agent in self._agents]
            vectors = [agent.vector(observation) for agent, observation in shown]
            masks = [self._available(agent, observation, infos) for agent, observation in shown]
        return np.concatenate(vectors), np.concatenate(masks)

    def step(self, action: FloatArray, alive: BoolArray) -> CopyStep:
        """Step the instance; see ``Instance.step``."""
        self.steps += 1
        with naming(self.name, f"failed in step {self.steps} of seed {self.seed}"):
            acting = [agent for agent, acts in zip(self._agents, alive, strict=True) if acts]
            actions = {agent.name: agent.choice(action) for agent in acting}
            answer = _Answer(*self._environment.step(actions))
            self._require_known({*self._environment.agents, *answer.observations, *answer.rewards})
            outcome = self._blank()
            for i, agent in enumerate(self._agents):
                if alive[i]:
                    self._settle(i, agent, answer, outcome)
                    goes_on = outcome.alive[i]
                else:
                    goes_on = outcome.alive[i] = self._comes_back(agent, answer)
                if goes_on or (alive[i] and not outcome.terminated[i]):
                    observation = _own(agent, answer.observations, "observation")
                    outcome.observation[agent.observation] = agent.vector(observation)
                    outcome.available[agent.action] = self._available(
                        agent, observation, answer.infos
                    )
            if wrong := np.flatnonzero(~np.isfinite(outcome.reward)).tolist():
                raise ValueError(f"{self._agents[wrong[0]].name}: a reward is not finite")
        return outcome

    def _settle(self, i: int, agent: ForeignAgent, answer: _Answer, outcome: CopyStep) -> None:
        """Note the reward of an agent that acted, and whether its life is over."""
        outcome.reward[i] = _own(agent, answer.rewards, "reward")
        outcome.terminated[i] = over = _own(agent, answer.terminated, "termination")
        outcome.alive[i] = not (over or _own(agent, answer.truncated, "truncation"))
        if outcome.alive[i] and agent.name not in self._environment.agents:
            raise ValueError(
                f"{agent.name} is no longer among the agents, but was neither terminated nor "
                "truncated; an agent that pauses stays among them"
            )

    def _comes_back(self, agent: ForeignAgent, answer: _Answer) -> bool:
        """Return whether an agent that did not act lives from now on."""
        name = agent.name
        if answer.rewards.get(name):
            self.ignored.add(
                f"{name} is paid in steps in which it does not act; no return counts it"
            )
        over = answer.terminated.get(name) or answer.truncated.get(name)
        return name in self._environment.agents and name in answer.observations and not over

    def _available(
        self, agent: ForeignAgent, observation: Any, infos: Mapping[Any, Any]
    ) -> BoolArray:
        available = agent.available(observation, infos.get(agent.name))
        if not (self.masked or available.all()):
            raise ValueError(
                f"{agent.name}: its info forbids actions, but no info of a reset with seed 0 had "
                f"an {MASK}; give it in every reset"
            )
        return available

    def _require_known(self, names: Iterable[Any]) -> None:
        if strangers := {*names} - {agent.name for agent in self._agents}:
            raise ValueError(f"{min(map(str, strangers))} is not one of its possible_agents")

    def _blank(self) -> CopyStep:
        """Return an outcome without living agents, to be filled in."""
        agents = len(self._agents)
        return CopyStep(
            observation=all_zero(self._agents),
            reward=np.zeros(agents),
            terminated=np.zeros(agents, dtype=bool),
            alive=np.zeros(agents, dtype=bool),
            available=np.ones(joint_size(self._agents)[1], dtype=bool),
        )

    def state(self) -> FloatArray:
        """Return the global state; see ``Instance.state``."""
        with naming(self.name, f"has no state after step {self.steps} of seed {self.seed}"):
            return pack_observation(self._state_space, self._environment.state())

    def close(self) -> None:
        """Close the foreign environment."""
        with naming(self.name, "failed to close"):
            self._environment.close()


def _own(agent: ForeignAgent, answer: Mapping[Any, Any], what: str) -> Any:
    """Return the agent's part of an answer.

    Raises:
        ValueError: There is none.
    """
    if agent.name not in answer:
        raise ValueError(f"{agent.name}: there is no {what}")
    return answer[agent.name]


def _sides(environment: Any) -> list[str]:
    """Return the side of each agent: as the environment says, or its type.

    Raises:
        ValueError: The environment names the sides of some agents only.
    """
    names, said = environment.possible_agents, getattr(environment, "sides", None)
    if not isinstance(said, Mapping):
        return [str(name).rstrip("0123456789").rstrip("_") or "team" for name in names]
    if absent := [name for name in names if name not in said]:
        raise ValueError(f"its sides leave out {absent}")
    return [str(said[name]) for name in names]
