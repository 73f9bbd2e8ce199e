"""E instances of a foreign environment as one ``Environment``, stepped one after the other."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import CodeRefused, ConfigError, EnvironmentFailed
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Step
from fullrank.environments.capabilities import chosen_actions


class CopyStep(NamedTuple):
    """One copy's part of a ``Step``."""

    observation: FloatArray
    """Packed joint observation, shape (sum of observation sizes,)."""
    reward: NDArray[np.float64]
    """Reward of each agent, shape (M,)."""
    terminated: BoolArray
    """True for agents whose episode has ended, shape (M,)."""
    alive: BoolArray
    """Shape (M,); the episode is over where no agent is alive."""
    available: BoolArray
    """Available actions of agents that did not terminate, shape (sum of action sizes,)."""


class Instance(Protocol):
    """One copy of a foreign environment."""

    name: str
    """Name of the environment, for messages."""
    seed: int
    """Seed of the running episode."""
    steps: int
    """Steps of the running episode, with one that has begun; 0 in a reset."""
    agents: tuple[AgentSpec, ...]
    state_size: int | None
    """Entries of the state; None if the environment has none."""
    shared_reward: bool
    """True if all agents always receive the same reward."""
    ignored: set[str]
    """What the environment has said and the adapter does not use, a line each."""

    def reset(self, seed: int) -> tuple[FloatArray, BoolArray]:
        """Start an episode; return the joint observation and the available actions."""

    def step(self, action: FloatArray, alive: BoolArray) -> CopyStep:
        """Advance by the packed joint action; ``alive``, shape (M,), marks the acting agents."""

    def state(self) -> FloatArray:
        """Return the current state, shape (state_size,)."""

    def close(self) -> None:
        """Release all resources."""


class Instances:
    """E instances as an ``Environment``.

    It is ``Stated``, ``Masked``, ``Shared``, ``Paused`` and ``Watched``, and has ``OwnLimits``.

    Args:
        instances: One instance per copy, all alike.
        masked: True if some actions may be unavailable to a living agent.

    Attributes:
        first_copy: Number by which messages name the first copy.
    """

    pauses = True
    first_copy = 0

    def __init__(self, instances: Sequence[Instance], *, masked: bool = False) -> None:
        self._instances, first = instances, instances[0]
        self._called: int | None = None
        """Copy whose environment is being stepped or reset."""
        self.agents, self.copies = first.agents, len(instances)
        self.shared_reward, self.masked = first.shared_reward, masked
        size = sum(agent.observation_size for agent in self.agents)
        self.state_size = size if first.state_size is None else first.state_size
        self._observation: FloatArray = np.zeros((self.copies, size), dtype=np.float32)
        self._alive = np.zeros((self.copies, len(self.agents)), dtype=bool)
        self._idle = np.concatenate([_idle(agent) for agent in self.agents])
        self._available = np.tile(self._idle, (self.copies, 1))
        self._next_available = self._available
        self._owner = np.repeat(
            np.arange(len(self.agents)), [agent.action.size for agent in self.agents]
        )

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``; the instances get these seeds."""
        observation, available = self._observation.copy(), self._available.copy()
        for seed, copy in zip(seeds, copies, strict=True):
            with self._naming(copy):
                observation[copy], available[copy] = self._instances[copy].reset(seed)
            self._alive[copy] = True
        self._observation = observation
        self._available = self._next_available = available
        return observation

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``.

        Raises:
            EnvironmentFailed: An action is not available, or the foreign environment raised.
        """
        chosen_actions(self.agents, action, available=self._available, alive=self._alive)
        step = Step(
            observation=np.zeros_like(self._observation),
            reward=np.zeros(self._alive.shape),
            terminated=np.zeros_like(self._alive),
            alive=np.zeros_like(self._alive),
            ended=np.zeros(self.copies, dtype=bool),
        )
        available = self._available.copy()
        for copy in np.flatnonzero(self._alive.any(axis=1)).tolist():
            with self._naming(copy):
                outcome = self._instances[copy].step(action[copy], self._alive[copy])
            step.observation[copy] = outcome.observation
            step.reward[copy] = outcome.reward
            step.terminated[copy] = outcome.terminated
            step.alive[copy] = outcome.alive
            available[copy] = outcome.available
        step.ended[:] = ~step.alive.any(axis=1)
        # Where a time limit came, of the episode or of an agent, the last state's value is needed.
        valued = step.alive | self._alive & ~step.terminated
        self._next_available = np.where(valued[:, self._owner], available, self._idle)
        choosing = step.ended[:, None] | step.alive
        self._available = np.where(choosing[:, self._owner], self._next_available, self._idle)
        self._observation, self._alive = step.observation, step.alive.copy()
        return step

    @contextmanager
    def _naming(self, copy: int) -> Iterator[None]:
        """Name the copy in errors of its instance, and to a watchdog."""
        self._called = copy
        try:
            yield
        except EnvironmentFailed as error:
            raise EnvironmentFailed(f"copy {self.first_copy + copy}: {error}") from error
        finally:
            self._called = None

    def doing(self) -> str:
        """See ``Watched``."""
        copy = self._called
        if copy is None:
            return ""
        instance = self._instances[copy]
        call = f"step {instance.steps}" if instance.steps else "the reset"
        return (
            f"copy {self.first_copy + copy} is in {call} of seed {instance.seed} of {instance.name}"
        )

    def ignored(self) -> list[str]:
        """Return what the environments have said and the adapter does not use, a line each."""
        return sorted({line for instance in self._instances for line in instance.ignored})

    def state(self) -> FloatArray:
        """See ``Stated``; the joint observation if the foreign environment has no state."""
        if self._instances[0].state_size is None:
            return self._observation
        states = []
        for copy, instance in enumerate(self._instances):
            with self._naming(copy):
                states.append(instance.state())
        return np.stack(states)

    def available(self) -> BoolArray:
        """See ``Masked``; action 0 stands for the no-op."""
        return self._available

    def next_available(self) -> BoolArray:
        """See ``OwnLimits``."""
        return self._next_available

    def close(self) -> None:
        """Close all instances.

        Raises:
            EnvironmentFailed: The foreign environment raised first, and no error is on its way.
        """
        failures = []
        for copy, instance in enumerate(self._instances):
            try:
                with self._naming(copy):
                    instance.close()
            except EnvironmentFailed as error:
                failures.append(error)
        if failures and sys.exception() is None:
            raise failures[0]


def _idle(agent: AgentSpec) -> BoolArray:
    """Return the available actions of an agent that is not alive, shape (action size,)."""
    if not agent.action.choices:
        return np.ones(agent.action.size, dtype=bool)
    return np.concatenate([np.arange(size) == 0 for size in agent.action.choices])


def require_agents(environment: str, agents: int, *, own: int) -> None:
    """Raise ``ConfigError`` unless ``agents`` is 0 or the environment's own number."""
    if agents not in (0, own):
        raise ConfigError(
            f"{environment} has {own} agents with these arguments, but {agents} are asked "
            "for; leave the number of agents out, or set the environment's own argument for it"
        )


@contextmanager
def naming(environment: str, failure: str) -> Iterator[None]:
    """Re-raise errors and ``sys.exit`` of a foreign environment as one line that names it."""
    try:
        yield
    except CodeRefused:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        raise EnvironmentFailed(f"{environment} {failure}: {reason}") from error


@contextmanager
def naming_agent(agent: str) -> Iterator[None]:
    """Name the agent whose part of a foreign environment's answer is refused."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{agent}: {error}") from error
