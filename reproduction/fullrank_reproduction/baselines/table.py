"""A table too large to exist: numbers by key, 0 until they are set."""

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import IntArray


class SparseTable:
    """Holds only the keys that were asked for.

    Attributes:
        values: One for each key; a key keeps its place.
    """

    def __init__(self) -> None:
        self.values: NDArray[np.float64] = np.zeros(1)
        self._place: dict[bytes, int] = {}

    def __len__(self) -> int:
        """How many keys were asked for."""
        return len(self._place)

    def places(self, keys: NDArray[np.int32]) -> IntArray:
        """Where the values of keys lie, new ones included.

        Args:
            keys: Tuples of k numbers, shape (..., k).

        Returns:
            Indices into ``values``, shape (...).
        """
        data, width = keys.tobytes(), keys.itemsize * keys.shape[-1]
        place = self._place
        found = [
            place.setdefault(data[start : start + width], len(place))
            for start in range(0, len(data), width)
        ]
        if len(place) > len(self.values):
            self.values = np.concatenate([self.values, np.zeros(2 * len(place))])
        return np.array(found).reshape(keys.shape[:-1])
