"""Layout of observations by entity: the agent itself, and others of several kinds.

For networks that treat all entities of a kind identically, in any number ([Long20], Sec. 4.1).
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, IntArray
from fullrank.environments.arena.config import ArenaLayout
from fullrank.environments.arena.environment import Arena
from fullrank.environments.base import Environment
from fullrank.environments.lattice.environment import LatticeEnvironment
from fullrank.environments.lattice.grid import ABSENT
from fullrank.environments.neighbourhood import slots

OWN = 5
"""Entries of the agent itself: velocity, position and life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityKind:
    """Entities of one kind, each with f entries of an observation."""

    name: str
    columns: IntArray
    """Columns of these entries in each agent's observation, shape (M, n, f)."""
    placed: BoolArray
    """Mask of the n entities for which an agent's observation has a place, shape (M, n)."""
    blank: bool
    """True if only zeros mark an empty place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entities:
    """Layout of the observations of M agents, all of one size; only n depends on M."""

    own: IntArray
    """Columns of the agent's own entries, shape (s,)."""
    kinds: tuple[EntityKind, ...]

    def of(self, agents: slice) -> "Entities":
        """The layout for a subset of the agents."""
        kinds = (
            replace(kind, columns=kind.columns[agents], placed=kind.placed[agents])
            for kind in self.kinds
        )
        return replace(self, kinds=tuple(kinds))


@runtime_checkable
class Described(Protocol):
    """An environment with a layout of its own.

    All agents have observations of one size and equal actions, and act until the end.
    """

    def entities(self) -> Entities:
        """The layout.

        Raises:
            ConfigError: Observations do not determine the layout.
        """


def entities_of(environment: Environment, name: str) -> Entities:
    """Layout of an environment's observations.

    Raises:
        ConfigError: The layout is unknown, or observations do not determine it.
    """
    if isinstance(environment, Arena):
        return arena_entities(environment.layout)
    if isinstance(environment, LatticeEnvironment):
        return _lattice_entities(environment)
    if not isinstance(environment, Described):
        raise ConfigError(
            f"the layout of the observations of {name} is unknown; choose a task on a lattice or "
            "in an arena, or give the environment a method `entities`"
        )
    return environment.entities()


def _lattice_entities(environment: LatticeEnvironment) -> Entities:
    """Neighbours on a lattice; a neighbour without bits still counts as present."""
    agents, places = environment.hood.shape
    bits = environment.state.shape[2]
    columns = np.arange(places * bits).reshape(places, bits)
    neighbours = EntityKind(
        name="neighbour",
        columns=np.broadcast_to(columns[1:], (agents, places - 1, bits)),
        placed=environment.hood[:, 1:] != ABSENT,
        blank=False,
    )
    return Entities(own=columns[0], kinds=(neighbours,))


def arena_entities(layout: ArenaLayout) -> Entities:
    """Food, and other agents by kind of body; ``ArenaConfig`` orders their places.

    Raises:
        ConfigError: Places are filled with near agents, which may be of either side.
    """
    agents, places = len(layout.bodies), layout.neighbours_seen
    food = OWN + 3 * np.arange(layout.food_seen)[:, None] + np.arange(2)
    kinds = [
        EntityKind(
            name="food",
            columns=np.broadcast_to(food, (agents, *food.shape)),
            placed=np.ones((agents, layout.food_seen), dtype=bool),
            blank=True,
        )
    ]
    columns = _neighbours(OWN + 3 * layout.food_seen, places)
    for name, mask in _members(layout).items():
        indices = slots(mask)
        kinds.append(
            EntityKind(name=name, columns=columns[indices], placed=indices >= 0, blank=True)
        )
    return Entities(own=np.arange(OWN), kinds=tuple(kinds))


def _neighbours(start: int, places: int) -> IntArray:
    """Columns of relative position, velocity and life for each place, shape (places, 5)."""
    place = start + np.arange(places)
    position = start + 2 * np.arange(places)
    velocity = position + 2 * places
    life = place + 4 * places
    return np.stack([position, position + 1, velocity, velocity + 1, life], axis=1)


def _members(layout: ArenaLayout) -> dict[str, BoolArray]:
    """Mask of each agent's places for each kind of body, shape (M, places)."""
    kinds = sorted({body.kind for body in layout.bodies})
    agents, places = len(layout.bodies), layout.neighbours_seen
    if len(kinds) == 1:
        return {kinds[0]: np.ones((agents, places), dtype=bool)}
    if places < agents - 1 or layout.traits.sight.min() < 2 * math.sqrt(2) * layout.half_width:
        raise ConfigError(
            "agents that do not see all others cannot tell which side fills which place of their "
            "observations; set environment.distance = 100 and environment.neighbours_seen = 0"
        )
    place = np.arange(places)
    other = place + (place >= np.arange(agents)[:, None])
    kind = np.array([body.kind for body in layout.bodies])[other]
    return {name: kind == name for name in kinds}
