"""Neighbour interaction [DARL1N], Sec. III: samples of one agent without the rest of the team.

A sample of agent i simulates only the agents around it: all that can be neighbours of its next
neighbours act and move. The reward of i and the observations of i and its next neighbours equal,
bit for bit, those of a step of the whole team under the same rules.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

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
