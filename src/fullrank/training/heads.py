"""Heads of all containers, exchanged by version: the newest one of each container wins."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray


class ContainerHead(NamedTuple):
    """The last layer of a container's network of action values."""

    version: int
    """Number of updates that it has taken."""
    values: FloatArray
    """Its parameters [W | b], flat."""

    @property
    def is_finite(self) -> bool:
        """False for a head that has diverged."""
        return bool(np.isfinite(self.values).all())


class Heads:
    """The newest head of each container.

    Args:
        size: Entries of a head.

    Attributes:
        size: As given.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._heads: dict[int, ContainerHead] = {}

    def publish(self, container: int, head: ContainerHead) -> bool:
        """Take a container's head; return False if a newer one is held, or it is not finite.

        Raises:
            InvalidContribution: It has another size.
        """
        if head.values.shape != (self.size,):
            raise InvalidContribution(
                f"the head of container {container} has shape {head.values.shape}; it has "
                f"{self.size} entries"
            )
        held = self._heads.get(container)
        if held is not None and held.version > head.version:
            return False
        if not head.is_finite:
            return False
        self._heads[container] = ContainerHead(head.version, head.values.copy())
        return True

    def __iter__(self) -> Iterator[tuple[int, ContainerHead]]:
        """Yield the number and the newest head of each container, by ascending number."""
        return iter(sorted(self._heads.items()))

    def of(self, container: int) -> ContainerHead | None:
        """Return a container's newest head, which it goes on with after a restart."""
        return self._heads.get(container)

    def others(self, container: int) -> list[FloatArray]:
        """Return the heads of all other containers, by ascending number."""
        return [head.values for other, head in self if other != container]
