"""Observations of all agents of one kind at once."""

import numpy as np

from fullrank.common.types import Array, BoolArray, FloatArray, IntArray


def write(out: FloatArray, *parts: Array | BoolArray) -> None:
    """Write the observations of g agents, part by part.

    Args:
        out: Shape (g * observation size, E).
        *parts: Vectors of shape (2, g, k, E), whose coordinates are written side by side, or plain
            features of shape (g, k, E); g may be 1 for parts that all agents share.
    """
    copies = out.shape[1]
    widths = [part.shape[-2] * (2 if part.ndim == 4 else 1) for part in parts]
    block = out.reshape(-1, sum(widths), copies)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        place = block[:, start : start + width]
        if part.ndim == 4:
            place = place.reshape(len(block), width // 2, 2, copies).transpose(2, 0, 1, 3)
        place[...] = part
        start += width


def others(agents: int) -> tuple[IntArray, IntArray]:
    """Index of all entries of axes (agent, agent) but the diagonal, rows ascending."""
    indices = np.tile(np.arange(agents), (agents, 1))
    rest = indices[~np.eye(agents, dtype=bool)].reshape(agents, agents - 1)
    return np.arange(agents)[:, None], rest


def one_hot(index: IntArray, size: int) -> BoolArray:
    """One-hot vectors, shape (k, size, E), of integers, shape (k, E)."""
    result: BoolArray = index[:, None] == np.arange(size)[:, None]
    return result
