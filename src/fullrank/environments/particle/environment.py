"""Base of the particle scenarios: episodes of fixed length in a world of E copies."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fullrank.common.seeding import stream
from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import AgentSpec, Step, TimeLimit, require_horizon
from fullrank.environments.capabilities import Upload
from fullrank.environments.particle.scene import Scene
from fullrank.environments.particle.world import Body, World, length


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleConfig:
    """Configuration shared by the particle scenarios."""

    horizon: int = 25
    """Steps of an episode."""
    variant: Literal["openai"] = "openai"
    """Source of dynamics and rewards: the original [Lowe17]; others come through PettingZoo."""

    def __post_init__(self) -> None:
        require_horizon(self.horizon)


class ParticleEnvironment(ABC):
    """An ``Environment``; scenarios define starts, observations and rewards.

    Nothing is terminal in these worlds: an episode ends at its horizon, which is a time limit.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], bodies: Sequence[Body], *, copies: int, horizon: int
    ) -> None:
        self.agents = tuple(agents)
        self.copies = copies
        self.world = World(bodies, copies=copies)
        self._thrust = np.zeros((2, self.world.movers, copies))
        self.horizon = horizon
        self._limit = TimeLimit(agents=len(agents), copies=copies, horizon=horizon)
        self._observation_size = sum(agent.observation_size for agent in agents)

    @abstractmethod
    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Draw one copy's start: set the scenario's own state, return positions, shape (2, n)."""

    def act(self, action: FloatArray) -> None:
        """Apply the actions, shape (sum of action sizes, E)."""
        self.world.step(thrust(action, self._thrust))

    @abstractmethod
    def observe(self, out: FloatArray) -> None:
        """Write the observations into ``out``, shape (sum of observation sizes, E)."""

    @abstractmethod
    def reward(self) -> Array:
        """Rewards of the present state, shape (M, E)."""

    def scene(self, copy: int) -> Scene:
        """The drawable state of one copy."""
        return Scene(
            kinds=tuple(body.kind for body in self.world.bodies),
            size=np.array([body.size for body in self.world.bodies]),
            position=self.world.position[:, :, copy].T.copy(),
        )

    def started(self) -> tuple[NDArray[Any], ...]:
        """State that starts set, each array with the copies last."""
        return self.world.position, self.world.velocity

    def start(self, seeds: Sequence[int], copies: Sequence[int]) -> None:
        """Draw the starts of some copies; agents start at rest."""
        starts = zip(copies, seeds, strict=True)
        placed = [self.begin(copy, stream(seed, "particle")) for copy, seed in starts]
        rest = np.zeros((2, self.world.movers, len(placed)))
        self.world.place(copies, position=np.stack(placed, axis=-1), velocity=rest)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``."""
        if copies:
            self.start(seeds, copies)
            self._limit.begin(copies)
        return self.observation()

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        self.act(action.T)
        return self._limit.step(observation=self.observation(), reward=self.reward().T)

    def observation(self) -> FloatArray:
        """The joint observation of the present state, shape (E, sum of observation sizes)."""
        seen = np.empty((self._observation_size, self.copies), dtype=np.float32)
        self.observe(seen)
        return np.ascontiguousarray(seen.T)

    def on(self, upload: Upload) -> "DeviceParticles":
        """Make as many copies on a device; see ``Uploadable.on``."""
        return DeviceParticles(self, upload)

    def close(self) -> None:  # noqa: B027
        """Do nothing: no resource is held."""


class DeviceParticles:
    """E copies of a particle task on a device; starts are drawn by a task on the host.

    A step is the same operations on the same buffers, whatever the state. Implements
    ``DeviceEnvironment``.

    Args:
        host: Draws the starts; its own copies are not played.
        upload: Copies an array to the device.
    """

    def __init__(self, host: ParticleEnvironment, upload: Upload) -> None:
        self.agents, self.copies = host.agents, host.copies
        self._host, self._upload = host, upload
        self._there: ParticleEnvironment = _uploaded(host, upload)
        self._limit = TimeLimit(agents=len(host.agents), copies=host.copies, horizon=host.horizon)
        self.observation: Any = upload(np.ascontiguousarray(host.observation().T))
        self.reward: Any = upload(np.zeros((len(host.agents), host.copies)))

    def start(self, seeds: Sequence[int], copies: Sequence[int]) -> None:
        """Start episodes; see ``DeviceEnvironment.start``."""
        self._host.start(seeds, copies)
        where = self._upload(np.array(copies))
        for drawn, there in zip(self._host.started(), self.state(), strict=True):
            there[..., where] = self._upload(drawn[..., copies])
        self._there.world.forget()
        self._there.observe(self.observation)

    def state(self) -> tuple[Any, ...]:
        """Positions, velocities and what else starts set, tensors with the copies last."""
        return self._there.started()

    def advance(self, action: Any) -> None:
        """Step all copies; see ``DeviceEnvironment.advance``."""
        self._there.world.forget()  # a replayed step finds nothing that was computed before it
        self._there.act(action)
        self._there.observe(self.observation)
        self.reward[...] = self._there.reward()

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``."""
        if copies:
            self.start(seeds, copies)
            self._limit.begin(copies)
        return _host_rows(self.observation)

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``."""
        self.advance(self._upload(np.ascontiguousarray(action.T)))
        seen, reward = _host_rows(self.observation), _host_rows(self.reward)
        return self._limit.step(observation=seen, reward=reward)

    def close(self) -> None:
        """Do nothing: no resource is held."""


def _uploaded(value: Any, upload: Upload) -> Any:
    """Copy a task, a world or a tuple of arrays to a device; return anything else as it is."""
    if isinstance(value, np.ndarray):
        return upload(value)
    if isinstance(value, tuple):
        return tuple(_uploaded(part, upload) for part in value)
    if isinstance(value, ParticleEnvironment | World):
        there = copy(value)
        vars(there).update({name: _uploaded(part, upload) for name, part in vars(value).items()})
        return there
    return value


def _host_rows(columns: Any) -> NDArray[Any]:
    """Copy columns on a device to rows in host memory."""
    return np.array(columns.cpu().numpy().T, order="C")


def thrust(action: FloatArray, out: Array) -> Array:
    """Net direction of the actions none, +x, -x, +y, -y, or any point of their simplex.

    Args:
        action: Shape (5 m, E).
        out: Receives the direction, shape (2, m, E).

    Returns:
        ``out``.
    """
    by_entry = action.reshape(-1, 5, action.shape[1]).swapaxes(0, 1)
    out[...] = by_entry[1::2]
    out -= by_entry[2::2]
    return out


class GoalEnvironment(ParticleEnvironment):
    """The last L bodies are landmarks, and one of them is the goal.

    Attributes:
        goal: Its index among the landmarks, shape (E,).
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec],
        bodies: Sequence[Body],
        *,
        landmarks: int,
        copies: int,
        horizon: int,
    ) -> None:
        super().__init__(agents, bodies, copies=copies, horizon=horizon)
        self._landmarks = landmarks
        self._first = len(bodies) - landmarks
        self._copy = np.arange(copies)
        self.goal = np.zeros(copies, dtype=np.int64)

    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Place agents and landmarks uniformly, and draw the goal."""
        self.goal[copy] = generator.integers(self._landmarks)
        return generator.uniform(-1.0, 1.0, size=(2, len(self.world.bodies)))

    def started(self) -> tuple[NDArray[Any], ...]:
        """State that starts set, with the goal."""
        return *super().started(), self.goal

    def to_goal(self) -> Array:
        """Position of the goal relative to each mover, shape (2, m, E)."""
        world = self.world
        goal = world.position[:, self._first + self.goal, self._copy]
        return goal[:, None] - world.position[:, : world.movers]

    def goal_distance(self) -> Array:
        """Distance of each mover to the goal, shape (m, E)."""
        return length(self.to_goal())

    def scene(self, copy: int) -> Scene:
        """The drawable state, with the goal."""
        return super().scene(copy).with_goal(self._first + int(self.goal[copy]))
