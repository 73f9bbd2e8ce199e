"""Sparse table: numbers by key, 0 until they are set."""

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import IntArray


class SparseTable:
    """A table that stores only the keys that were looked up.

    Attributes:
        values: One value for each key, at an index that never changes.
    """

    def __init__(self) -> None:
        self.values: NDArray[np.float64] = np.zeros(1)
        self._place: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Number of keys stored."""
        return len(self._place)

    def places(self, keys: NDArray[np.int32]) -> IntArray:
        """Indices of the values of keys; unknown keys are added.

        Args:
            keys: Tuples of k numbers, shape (..., k).

        Returns:
            Indices into ``values``, shape (...).
        """
        data, width = keys.tobytes(), keys.itemsize * keys.shape[-1]
        place = self._place
        places = [
            place.setdefault(data[start : start + width], len(place))
            for start in range(0, len(data), width)
        ]
        if len(place) > len(self.values):
            self.values = np.concatenate([self.values, np.zeros(2 * len(place))])
        return np.array(places).reshape(keys.shape[:-1])
