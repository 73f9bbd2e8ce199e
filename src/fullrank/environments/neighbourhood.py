"""Neighbour interaction [DARL1N], Sec. III: samples of one agent without the rest of the team.

A sample of agent i simulates only the agents around it: all that can be neighbours of its next
neighbours act and move. The reward of i and the observations of i and its next neighbours equal,
bit for bit, those of a step of the whole team under the same rules.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Environment, environments


class Neighbourhood(NamedTuple):
    """The agents around one agent in each of S samples, in W slots by ascending index."""

    agent: IntArray
    """The agent in each slot, -1 in the empty ones at the end, shape (S, W)."""
    central: IntArray
    """Slot of the central agent, shape (S,)."""
    neighbour: BoolArray
    """N_i: the central agent and its one-hop neighbours, shape (S, W)."""
    acting: BoolArray
    """The agents that act in the step, N_i among them, shape (S, W)."""
    observation: FloatArray
    """Observations of the acting agents, 0 elsewhere, shape (S, W, D)."""


class Transition(NamedTuple):
    """Result of a step, in the slots of the neighbourhood before it."""

    reward: NDArray[np.float64]
    """Reward of the central agent, shape (S,)."""
    neighbour: BoolArray
    """N'_i: the central agent and its one-hop neighbours after the step, shape (S, W)."""
    observation: FloatArray
    """Observations of N'_i, 0 elsewhere, shape (S, W, D)."""


class NeighbourhoodWorld(Protocol):
    """Samples of single agents and their neighbourhoods; one ``step`` follows each start.

    All agents have observations of one size and actions of one kind.
    """

    agents: tuple[AgentSpec, ...]
    neighbours_seen: int
    """Neighbours, the agent excluded, for which its observation has places."""
    horizon: int
    """Steps of an episode of the whole team."""

    def actors(self, agent: int) -> Sequence[int]:
        """Agents that may act in a sample of the agent, itself included, ascending."""

    def start(self, agent: IntArray, *, generator: np.random.Generator) -> Neighbourhood:
        """Draw a state of the world, as a reset does, around one agent in each sample.

        Args:
            agent: The central agents, shape (S,).
            generator: Generator of all draws of this start and its step.
        """

    def team(self, copies: int) -> Environment:
        """E copies of the whole team, under the rules of the samples."""

    def around(
        self, team: Any, agent: IntArray, copy: IntArray, *, generator: np.random.Generator
    ) -> Neighbourhood:
        """Start from the state of a whole team.

        Args:
            team: Made by ``team``.
            agent: The central agents, shape (S,).
            copy: Copy of each sample, shape (S,).
            generator: Generator of all draws of the step.
        """

    def step(self, action: FloatArray) -> Transition:
        """Apply the actions of the acting agents.

        Args:
            action: Shape (S, W, actions); entries of the others are ignored.
        """


@runtime_checkable
class NeighbourhoodConfig(Protocol):
    """Configuration of an environment with neighbour interaction."""

    def neighbourhood(self, *, agents: int) -> NeighbourhoodWorld:
        """Neighbour interaction in a team of M = ``agents`` (0: the environment's default)."""


def make_neighbourhood(name: str, *, agents: int = 0, **params: Any) -> NeighbourhoodWorld:
    """Build the neighbour interaction of a registered environment.

    Raises:
        ConfigError: Unknown name or parameter, an impossible number of agents, or an environment
            whose agents all depend on one another.
    """
    config = None if ":" in name else environments.build(name, **params)
    if not isinstance(config, NeighbourhoodConfig):
        able = [key for key in environments if hasattr(environments.get(key), "neighbourhood")]
        raise ConfigError(
            f"{name} has no neighbour interaction: its agents depend on all others; "
            f"choose one of {', '.join(able)}"
        )
    return config.neighbourhood(agents=agents)


def slots(present: BoolArray) -> IntArray:
    """Indices of the true entries of each row, ascending, then -1, shape (S, widest)."""
    widest = int(present.sum(axis=1).max(initial=0))
    order = np.argsort(~present, axis=1, kind="stable")[:, :widest]
    return np.where(np.take_along_axis(present, order, axis=1), order, -1)


AgentPolicy: TypeAlias = Callable[[IntArray, FloatArray], FloatArray]
"""Maps acting agents, shape (n,), and their observations, shape (n, D), to (n, actions)."""


class Samples(NamedTuple):
    """S transitions of one agent; D entries of an observation, K places of A for actions."""

    seen: FloatArray
    """The agent's observation, then the actions of it and its neighbours, (S, D + K A)."""
    reward: NDArray[np.float64]
    """Rewards of the agent, shape (S,)."""
    seen_next: FloatArray
    """The same after the step, with target actions, (S, D + K A)."""


class MakeSamples(Protocol):
    """A method of making samples."""

    def __call__(
        self,
        world: NeighbourhoodWorld,
        agent: int,
        size: int,
        *,
        generator: np.random.Generator,
        act: AgentPolicy,
        act_next: AgentPolicy,
    ) -> Samples:
        """Let the agents around the agent act, and evaluate the next neighbours' actions.

        Args:
            world: Simulates the agents around the agent.
            agent: The central agent of the samples.
            size: Number of samples, S.
            generator: Generator of all draws of the world.
            act: The policies.
            act_next: The target policies.
        """


def from_resets(
    world: NeighbourhoodWorld,
    agent: int,
    size: int,
    *,
    generator: np.random.Generator,
    act: AgentPolicy,
    act_next: AgentPolicy,
) -> Samples:
    """See ``MakeSamples``; samples start anywhere, and only the agents around are simulated."""
    here = world.start(np.full(size, agent), generator=generator)
    action = _in_slots(act, here.agent, here.acting, here.observation, world)
    return _stepped(world, here, action, act_next)


def from_episodes(
    world: NeighbourhoodWorld,
    agent: int,
    size: int,
    *,
    generator: np.random.Generator,
    act: AgentPolicy,
    act_next: AgentPolicy,
) -> Samples:
    """See ``MakeSamples``; samples are the first S steps of whole episodes, side by side.

    Any agent may come near within an episode, so the whole team plays.
    """
    copies, agents = np.arange(-(-size // world.horizon)), len(world.agents)
    every_agent, central = np.tile(np.arange(agents), len(copies)), np.full(len(copies), agent)
    team = world.team(len(copies))
    seen = team.reset(generator.integers(2**62, size=len(copies)).tolist(), copies.tolist())
    parts = []
    for _ in range(world.horizon):
        joint = act(every_agent, seen.reshape(len(every_agent), -1))
        action = joint.reshape(len(copies), agents, -1)
        here = world.around(team, central, copies, generator=generator)
        near = action[copies[:, None], here.agent] * here.acting[..., None]
        parts.append(_stepped(world, here, near, act_next))
        seen = team.step(joint.reshape(len(copies), -1)).observation
    seen, reward, seen_next = (np.concatenate(part)[:size] for part in zip(*parts, strict=True))
    return Samples(seen, reward, seen_next)


def _stepped(
    world: NeighbourhoodWorld, here: Neighbourhood, action: FloatArray, act_next: AgentPolicy
) -> Samples:
    after = world.step(action)
    target = _in_slots(act_next, here.agent, after.neighbour, after.observation, world)
    places = 1 + world.neighbours_seen
    return Samples(
        _critic_input(here.observation, action, here.neighbour, here.central, places),
        after.reward,
        _critic_input(after.observation, target, after.neighbour, here.central, places),
    )


def _in_slots(
    act: AgentPolicy,
    agent: IntArray,
    who: BoolArray,
    observation: FloatArray,
    world: NeighbourhoodWorld,
) -> FloatArray:
    """Actions of the agents in a mask, zeros elsewhere, shape (S, W, A)."""
    acting = np.flatnonzero(who)
    action = np.zeros((who.size, world.agents[0].action.size), dtype=np.float32)
    seen = observation.reshape(who.size, -1).take(acting, axis=0)
    action[acting] = act(agent.take(acting), seen)
    return action.reshape(*who.shape, -1)


def _critic_input(
    observation: FloatArray,
    action: FloatArray,
    neighbour: BoolArray,
    central: IntArray,
    places: int,
) -> FloatArray:
    """Own observation and action, then neighbours' actions by index, and zeros for absent ones.

    Neighbours beyond the places are left out, as in observations.
    """
    sample = np.arange(len(central))
    others = neighbour.copy()
    others[sample, central] = False
    place = np.cumsum(others, axis=1)
    others &= place < places
    near, size = np.flatnonzero(others), action.shape[2]
    actions = np.zeros((len(sample) * places, size), dtype=np.float32)
    actions[::places] = action[sample, central]
    row = near // neighbour.shape[1]
    actions[row * places + place.take(near)] = action.reshape(-1, size).take(near, axis=0)
    own = observation[sample, central]
    return np.concatenate([own, actions.reshape(len(sample), -1)], axis=1)
