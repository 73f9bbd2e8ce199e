"""A buffer of the newest episodes in memory, drawn with replacement by priority.

P(episode) = p^exponent / sum of all p^exponent, the proportional variant of [Schaul16, Sec. 3.3].
Differs from the paper: priorities never change, and there are no importance weights.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray


class EpisodeBuffer:
    """Episodes of one process.

    Args:
        capacity: Most episodes that are kept.
        exponent: Exponent alpha of the priorities; 0 draws uniformly.
    """

    def __init__(self, capacity: int, *, exponent: float) -> None:
        if capacity < 1 or exponent < 0:
            raise ConfigError("a buffer keeps at least 1 episode, and its exponent is at least 0")
        self._exponent = exponent
        self._episodes: deque[FloatArray] = deque(maxlen=capacity)
        self._weights: deque[float] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, episodes: Sequence[FloatArray], priorities: Array) -> None:
        """Keep episodes, and drop the oldest beyond the capacity.

        Args:
            episodes: Packed rows of each.
            priorities: Priority of each, above 0, shape (episodes,).
        """
        self._episodes.extend(episodes)
        self._weights.extend((priorities**self._exponent).tolist())

    def draw(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Return all rows of ``size`` drawn episodes, one after the other."""
        before = np.cumsum(self._weights)
        points = generator.random(size) * before[-1]
        drawn = np.searchsorted(before[:-1], points, side="right")
        return np.concatenate([self._episodes[number] for number in drawn.tolist()])
