"""Local interaction [DARL1N], Sec. III: what one agent needs for learning, and nobody else.

For a sample of agent i, only those around it are simulated: all who can be neighbours of its next
neighbours act and move. What i earns and what it and its next neighbours see is bit for bit what a
step of the whole team, judged in the same manner, would give.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Environment, environments


class Neighbourhood(NamedTuple):
    """Those around one agent in each of S samples, in W slots by ascending index."""

    agent: IntArray
    """Who is in each slot, -1 in empty ones, which stand last, shape (S, W)."""
    central: IntArray
    """The slot of the agent that the sample is for, shape (S,)."""
    neighbour: BoolArray
    """N_i: the central agent and its one-hop neighbours, shape (S, W)."""
    acting: BoolArray
    """Who acts in the step, N_i among them, shape (S, W)."""
    observation: FloatArray
    """What those that act see, 0 elsewhere, shape (S, W, D)."""


class Transition(NamedTuple):
    """What a step gives, in the slots of the neighbourhood before it."""

    reward: NDArray[np.float64]
    """The central agent's, shape (S,)."""
    neighbour: BoolArray
    """N'_i: the central agent and its one-hop neighbours after the step, shape (S, W)."""
    observation: FloatArray
    """What those in N'_i see, 0 elsewhere, shape (S, W, D)."""


class LocalWorld(Protocol):
    """Samples of single agents and those around them; a ``step`` follows each start.

    All agents have observations of one size and actions of one kind.
    """

    agents: tuple[AgentSpec, ...]
    neighbours_seen: int
    """Neighbours, without itself, for which an agent's observation has places."""
    horizon: int
    """Steps of an episode of the whole team."""

    def actors(self, agent: int) -> Sequence[int]:
        """Who may act in a sample of the agent, itself among them, ascending."""

    def start(self, agent: IntArray, *, generator: np.random.Generator) -> Neighbourhood:
        """Draw a state of the world, as a reset does, around one agent in each sample.

        Args:
            agent: Who the samples are for, shape (S,).
            generator: All draws of this start and its step; equal ones give equal samples.
        """

    def team(self, copies: int) -> Environment:
        """E copies of the whole team, judged as its parts are."""

    def around(
        self, team: Any, agent: IntArray, copy: IntArray, *, generator: np.random.Generator
    ) -> Neighbourhood:
        """Start from where a whole team is.

        Args:
            team: As ``team`` gives it.
            agent: Who the samples are for, shape (S,).
            copy: In which copies they are, shape (S,).
            generator: All draws of the step.
        """

    def step(self, action: FloatArray) -> Transition:
        """Let those that act do so.

        Args:
            action: Shape (S, W, actions); entries of those that do not act are ignored.
        """


@runtime_checkable
class LocalConfig(Protocol):
    """The configuration of an environment whose agents can be simulated locally."""

    def local(self, *, agents: int) -> LocalWorld:
        """Local interaction in a team of M = ``agents`` (0: the environment's own number)."""


def make_local(name: str, *, agents: int = 0, **params: Any) -> LocalWorld:
    """Build the local interaction of a registered environment.

    Raises:
        ConfigError: Unknown name or parameter, an impossible number of agents, or an environment
            whose agents all depend on each other.
    """
    config = environments.build(name, **params)
    if not isinstance(config, LocalConfig):
        able = [known for known in environments if hasattr(environments.get(known), "local")]
        raise ConfigError(
            f"{name} has no local interaction: its agents depend on all others; "
            f"choose one of {', '.join(able)}"
        )
    return config.local(agents=agents)


def slots(present: BoolArray) -> IntArray:
    """The indices set in each row, ascending, then -1, shape (S, widest)."""
    widest = int(present.sum(axis=1).max(initial=0))
    order = np.argsort(~present, axis=1, kind="stable")[:, :widest]
    return np.where(np.take_along_axis(present, order, axis=1), order, -1)
