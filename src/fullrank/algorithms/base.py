"""The interface and the registry of algorithms, and their view of the environment.

A registered configuration describes its ``Problem`` without torch, and makes an ``Algorithm``, the
four roles of one process.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.roles import Algorithm
from fullrank.common.errors import ConfigError
from fullrank.common.registry import Registry
from fullrank.environments.base import AgentSpec
from fullrank.environments.neighbourhood import NeighbourhoodWorld, make_neighbourhood
from fullrank.replay.layout import Layout


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec:
    """Facts about the environment on which an algorithm depends."""

    agents: tuple[AgentSpec, ...]
    """Specifications of the agents, in order."""
    neighbourhoods: Callable[[], NeighbourhoodWorld] | None = None
    """Factory of the neighbour interaction; None if the environment has none."""
    state_size: int = 0
    """Number of entries of the global state; 0: the joint observation serves as the state."""
    masked: bool = False
    """True if some actions may be unavailable to a living agent."""

    @cached_property
    def layout(self) -> Layout:
        """The layout of transitions, with masks if the environment offers them."""
        return layout_of(self.agents, masked=self.masked)

    def local(self) -> NeighbourhoodWorld:
        """Return the environment's neighbour interaction.

        Raises:
            ConfigError: The environment has no neighbour interaction.
        """
        if self.neighbourhoods is None:
            raise ConfigError("this algorithm needs an environment of neighbours; choose another")
        return self.neighbourhoods()


class AlgorithmConfig(Protocol):
    """A registered algorithm: a frozen dataclass whose fields are its configuration."""

    @abstractmethod
    def data_mode(self) -> DataMode:
        """Return the origin of the transitions, which is the same for every environment."""

    @abstractmethod
    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe the algorithm that ``make`` builds, without allocating parameters."""

    @abstractmethod
    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build the algorithm with initial parameters drawn from ``seed``.

        Args:
            environment: Agents and their neighbourhoods.
            seed: The run's seed.
            device: ``cpu``, ``cuda`` or ``cuda:K``.
        """


def layout_of(agents: Sequence[AgentSpec], *, masked: bool = False) -> Layout:
    """Return the layout of the agents' transitions; ``masked`` ones hold masks of actions."""
    return Layout(
        observation_sizes=tuple(agent.observation_size for agent in agents),
        action_sizes=tuple(agent.action.size for agent in agents),
        masked=masked,
        always_zero=tuple(agent.always_zero for agent in agents),
    )


algorithms: Registry[AlgorithmConfig] = Registry(
    "algorithm", "fullrank.algorithms", interface=AlgorithmConfig
)
register = algorithms.register


def environment_spec(
    agents: Sequence[AgentSpec],
    *,
    environment: str,
    count: int,
    params: Mapping[str, Any],
    state_size: int = 0,
    masked: bool = False,
) -> EnvironmentSpec:
    """Return the specification of a registered environment.

    Args:
        agents: Specifications of the environment's agents, in order.
        environment: Registered name, or ``package.module:factory``.
        count: Configured number of agents; 0 means the environment's default.
        params: Parameters of the environment.
        state_size: Entries of its global state; 0 if it has none.
        masked: True if some actions may be unavailable to a living agent.
    """
    return EnvironmentSpec(
        agents=tuple(agents),
        state_size=state_size,
        masked=masked,
        neighbourhoods=cache(lambda: make_neighbourhood(environment, agents=count, **params)),
    )
