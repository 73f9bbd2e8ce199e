"""The part of a freshly reset arena around one agent, drawn without the rest.

A reset places all agents uniformly and independently. So a binomial number of the M - 1 others lies
in a window around the agent, uniformly in it, and they are a random subset. The cost depends on the
number in the window, not on M.
"""

import numpy as np

from fullrank.common.types import Array, IntArray
from fullrank.environments.proximity import NOBODY


def window(centre: Array, reach: float, half_width: float) -> tuple[Array, Array]:
    """Lower and upper corners of squares around points, cut to the arena, shape (2, S) each."""
    low, high = np.maximum(centre - reach, -half_width), np.minimum(centre + reach, half_width)
    return low, high


def scatter(
    corners: tuple[Array, Array], half_width: float, number: int, generator: np.random.Generator
) -> Array:
    """Points of ``number`` uniform ones that lie in each window.

    Returns:
        Shape (2, S, most), padded with NaN.
    """
    low, high = corners
    share = np.prod((high - low) / (2 * half_width), axis=0)
    counts = generator.binomial(number, share)
    most = int(counts.max(initial=0))
    place = low[..., None] + (high - low)[..., None] * generator.random((2, len(counts), most))
    return np.where(np.arange(most) < counts[:, None], place, np.nan)


def some(counts: IntArray, number: int, generator: np.random.Generator) -> IntArray:
    """``counts[s]`` distinct random integers below ``number`` in each row, by Floyd's method.

    Returns:
        Shape (S, most), padded with ``NOBODY``.
    """
    most = int(counts.max(initial=0))
    chosen = np.full((len(counts), most), NOBODY)
    for place in range(most):
        largest = np.maximum(number - counts + place, 0)
        drawn = (generator.random(len(counts)) * (largest + 1)).astype(np.int64)
        taken = (chosen == drawn[:, None]).any(axis=1)
        chosen[:, place] = np.where(place < counts, np.where(taken, largest, drawn), NOBODY)
    return chosen


def team(others: IntArray, agent: IntArray) -> tuple[IntArray, IntArray]:
    """The agent and its others, ascending, ``NOBODY`` last.

    Args:
        others: Indices among the M - 1 that are not the agent, shape (S, n).
        agent: Shape (S,).

    Returns:
        The agent in each of 1 + n slots, and its index in (agent, *others), both of shape (S, 1 +
        n).
    """
    nobody = others == NOBODY
    shifted = np.where(nobody, NOBODY, others + (others >= agent[:, None]))
    everybody = np.concatenate([agent[:, None], shifted], axis=1)
    last = np.iinfo(np.int64).max
    order = np.argsort(np.where(everybody == NOBODY, last, everybody), axis=1)
    return np.take_along_axis(everybody, order, axis=1), order
