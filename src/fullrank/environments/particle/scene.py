"""Drawable state of one copy of a world in the plane."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import NamedTuple, Protocol, runtime_checkable

from fullrank.common.types import Array
from fullrank.environments.base import Environment


class Scene(NamedTuple):
    """The entities of one copy, n of them."""

    kinds: tuple[str, ...]
    """Kind of each entity, for example ``agent``, ``adversary``, ``landmark``, ``food``."""
    size: Array
    """Radii, shape (n,)."""
    position: Array
    """Shape (n, 2)."""
    links: tuple[tuple[int, int], ...] = ()
    """Linked pairs of entities."""
    labels: Mapping[int, str] = {}
    """Messages by entity."""
    shots: tuple[tuple[int, int], ...] = ()
    """Entities that act on others, and those others."""
    bars: Mapping[int, tuple[float, ...]] = {}
    """Shares that an entity has left, of health and perhaps of shield."""
    key: Mapping[str, str] = {}
    """Meanings of kinds and labels."""
    zones: Mapping[int, float] = {}
    """Radius of the rewarded zone around an entity."""
    half_width: float = 1.0
    """Half the side of the square of starting positions."""

    def with_goal(self, entity: int) -> "Scene":
        """The scene with one landmark as the goal."""
        kinds = (*self.kinds[:entity], "goal", *self.kinds[entity + 1 :])
        return self._replace(kinds=kinds)


@runtime_checkable
class Drawable(Environment, Protocol):
    """An environment in the plane."""

    def scene(self, copy: int) -> Scene:
        """The drawable state of one copy."""


def said(entities: Sequence[int], messages: Array) -> dict[int, str]:
    """The largest symbol of each speaker that is not silent, by entity.

    Args:
        entities: The k speakers.
        messages: Shape (k, symbols).
    """
    return {
        entity: ascii_uppercase[int(message.argmax())]
        for entity, message in zip(entities, messages, strict=True)
        if message.any()
    }
