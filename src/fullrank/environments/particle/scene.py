"""What there is to draw of one copy of a particle world."""

from collections.abc import Mapping
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

    def with_goal(self, entity: int) -> "Scene":
        """The same, with one landmark as the goal."""
        kinds = (*self.kinds[:entity], "goal", *self.kinds[entity + 1 :])
        return self._replace(kinds=kinds)
