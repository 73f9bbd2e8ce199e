"""Square lattices of agents and their neighbourhoods, in index order."""

import math
from collections.abc import Sequence

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import IntArray

ABSENT = -1
"""Filler for missing neighbours."""


def side_of(agents: int, *, task: str, least: int) -> int:
    """The side of the lattice of M agents, numbered row by row.

    Args:
        agents: M.
        task: For the message.
        least: Shortest side with the task's neighbourhoods.

    Raises:
        ConfigError: M is not the square of at least ``least``.
    """
    side = math.isqrt(max(agents, 0))
    if side * side != agents or side < least:
        examples = ", ".join(str(n * n) for n in range(max(least, 2), max(least, 2) + 3))
        raise ConfigError(
            f"{task}: the agents form a square lattice of side {least} or more, so M must be "
            f"a square ({examples}, ...): {agents}"
        )
    return side


def torus(side: int) -> IntArray:
    """Each agent, then its four neighbours on the torus in ascending order, shape (M, 5)."""
    cell = np.arange(side * side).reshape(side, side)
    around = [np.roll(cell, shift, axis) for axis in (0, 1) for shift in (1, -1)]
    return _with_self(np.sort(np.stack(around, axis=-1).reshape(-1, 4), axis=1))


def king(side: int) -> IntArray:
    """Each agent, then its up to eight neighbours in ascending order, shape (M, 9)."""
    cell = np.pad(np.arange(side * side).reshape(side, side), 1, constant_values=ABSENT)
    steps = [(row, column) for row in range(3) for column in range(3) if (row, column) != (1, 1)]
    around = [cell[row : row + side, column : column + side] for row, column in steps]
    ascending = np.stack(around, axis=-1).reshape(-1, 8)
    order = np.argsort(ascending == ABSENT, axis=1, kind="stable")
    return _with_self(np.take_along_axis(ascending, order, axis=1))


def _with_self(neighbours: IntArray) -> IntArray:
    return np.concatenate([np.arange(len(neighbours))[:, None], neighbours], axis=1)


def within(hood: IntArray, hops: int) -> IntArray:
    """Agents within so many steps, the agent included, in ascending order.

    Args:
        hood: Each agent and its neighbours, shape (M, n).
        hops: Steps, at least 0.

    Returns:
        Shape (M, widest), filled with ``ABSENT`` at the end.
    """
    reached: list[IntArray] = [row[:1] for row in hood]
    for _ in range(hops):
        reached = [np.setdiff1d(hood[row], ABSENT) for row in reached]
    return padded(reached)


def padded(rows: Sequence[IntArray]) -> IntArray:
    """Rows of unequal length as one array, filled with ``ABSENT``."""
    table = np.full((len(rows), max(map(len, rows))), ABSENT)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    return table
