"""What stands where in an observation: the agent itself, and others of several kinds.

For networks that treat all others of one kind alike, however many there are ([Long20], Sec. 4.1).
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, IntArray
from fullrank.environments.base import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Others of one kind, for each of which an observation has f entries."""

    name: str
    columns: IntArray
    """Where these entries are in the observation of each agent, shape (M, n, f)."""
    placed: BoolArray
    """Which of the n an agent's observation has a place for, shape (M, n)."""
    blank: bool
    """Whether zeros alone mean that nobody is in a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entities:
    """The observations of M agents, which all have one size; their number changes n alone."""

    own: IntArray
    """Where an agent sees itself, shape (s,)."""
    kinds: tuple[Kind, ...]

    def of(self, agents: slice) -> "Entities":
        """What some of the agents see."""
        kinds = (
            replace(kind, columns=kind.columns[agents], placed=kind.placed[agents])
            for kind in self.kinds
        )
        return replace(self, kinds=tuple(kinds))


@runtime_checkable
class Described(Protocol):
    """An environment that says what its observations hold.

    Its agents have observations of one size and the same actions, and all act until the end.
    """

    def entities(self) -> Entities:
        """What stands where.

        Raises:
            ConfigError: It cannot be told from an observation.
        """


def entities_of(environment: Environment, name: str) -> Entities:
    """What an environment says of its observations.

    Raises:
        ConfigError: It says nothing, or cannot tell.
    """
    if not isinstance(environment, Described):
        raise ConfigError(
            f"{name} does not say where in an observation others are; choose a task on a lattice "
            "or in an arena, or give the environment a method `entities`"
        )
    return environment.entities()
