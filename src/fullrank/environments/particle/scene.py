"""What there is to draw of one copy of a world in the plane."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import NamedTuple, Protocol, runtime_checkable

from fullrank.environments.base import Environment
from fullrank.environments.particle.world import Array


class Scene(NamedTuple):
    """The entities of one copy, n of them."""

    kinds: tuple[str, ...]
    """What each is, for example ``agent``, ``adversary``, ``landmark``, ``food``."""
    size: Array
    """Radii, shape (n,)."""
    position: Array
    """Shape (n, 2)."""
    links: tuple[tuple[int, int], ...] = ()
    """Pairs that belong together."""
    labels: Mapping[int, str] = {}
    """What entities say."""
    zones: Mapping[int, float] = {}
    """Radius around an entity within which being there pays."""
    half_width: float = 1.0
    """Half the side of the square in which everything starts."""

    def with_goal(self, entity: int) -> "Scene":
        """The same, with one landmark as the goal."""
        kinds = (*self.kinds[:entity], "goal", *self.kinds[entity + 1 :])
        return self._replace(kinds=kinds)


@runtime_checkable
class Drawable(Environment, Protocol):
    """An environment in the plane."""

    def scene(self, copy: int) -> Scene:
        """What there is to draw of one copy."""


def said(entities: Sequence[int], messages: Array) -> dict[int, str]:
    """The loudest symbol of each speaker, by entity; nothing for those that are silent.

    Args:
        entities: The speakers, k of them.
        messages: Shape (k, symbols).
    """
    return {
        entity: ascii_uppercase[int(message.argmax())]
        for entity, message in zip(entities, messages, strict=True)
        if message.any()
    }
