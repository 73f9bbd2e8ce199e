"""What there is to draw of one copy of a particle world."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import NamedTuple

from fullrank.environments.particle.world import Array


class Scene(NamedTuple):
    """The entities of one copy, n of them."""

    kinds: tuple[str, ...]
    """What each is: ``agent``, ``adversary``, ``speaker``, ``landmark``, ``goal``, ``obstacle``."""
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

    def with_goal(self, entity: int) -> "Scene":
        """The same, with one landmark as the goal."""
        kinds = (*self.kinds[:entity], "goal", *self.kinds[entity + 1 :])
        return self._replace(kinds=kinds)


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
