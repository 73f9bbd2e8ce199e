"""The proximity graph of points in the plane [DARL1N], Sec. II, for E copies at once.

Up to 256 x 256 points of a copy are compared pairwise. Beyond, points are sorted into square cells
at least as wide as the distance, and compared only with points in their own and the eight adjacent
cells; no array has the size of all pairs. Both ways give the same pairs in the same order. A point
at NaN is absent, and near no other.
"""

from typing import NamedTuple

import numpy as np

from fullrank.common.types import Array, BoolArray, IntArray

COMPARED = 256 * 256
"""Pairs of a copy up to which all are compared."""
ABSENT = -1
"""Filler for missing indices."""
SLACK = 1e-9
"""Relative margin of the cell width over the distance, against rounding."""


class Pairs(NamedTuple):
    """Pairs of points in ascending order of copy, first and second."""

    copy: IntArray
    """Index of the copy, shape (n,)."""
    one: IntArray
    """Index of the first among the points, shape (n,)."""
    other: IntArray
    """Index of the second among the other points, shape (n,)."""
    relative: Array
    """Position of the second relative to the first, shape (2, n)."""
    distance: Array
    """The length of ``relative``, shape (n,)."""

    def where(self, kept: BoolArray) -> "Pairs":
        """The pairs of a mask of shape (n,)."""
        index = np.flatnonzero(kept)
        if len(index) == len(kept):
            return self
        copy, one, other = (part.take(index) for part in (self.copy, self.one, self.other))
        return Pairs(copy, one, other, self.relative.take(index, axis=1), self.distance.take(index))

    def counts(self, copies: int, points: int) -> IntArray:
        """Number of pairs of each first point, shape (copies, points)."""
        counts = np.bincount(self.copy * points + self.one, minlength=copies * points)
        return counts.reshape(copies, points)


class Nearest(NamedTuple):
    """The k nearest of r present points, by distance, then by index."""

    copy: IntArray
    """Index of the copy, shape (r,)."""
    one: IntArray
    """Index of the point, shape (r,)."""
    which: IntArray
    """Indices of its nearest points, shape (r, k), filled with ``ABSENT``."""
    squared: Array
    """Squared distances, shape (r, k); filled with infinity."""

    def distance(self, copies: int, points: int) -> Array:
        """Distance of each point to its nearest, infinite if there is none, (copies, points)."""
        away = np.full((copies, points), np.inf)
        away[self.copy, self.one] = np.sqrt(self.squared[:, 0])
        return away


def pairs(one: Array, other: Array, reach: float | Array) -> Pairs:
    """All pairs at most ``reach`` apart.

    Args:
        one: Points, shape (2, E, m).
        other: Points to compare them with, shape (2, E, n); may be the same array; its points
            are then near themselves too.
        reach: Distance, for all or for each of the first points, (E, m) or (1, m).
    """
    _, copies, points = one.shape
    limit = np.broadcast_to(reach, (copies, points))
    if points * other.shape[2] <= COMPARED:
        here, relative = _compared(one, other)
        copy, first = np.divmod(here, points)
        distance = np.sqrt(_squared(relative))
        close = np.flatnonzero(distance <= limit.ravel()[here, None])
        row = close // other.shape[2]
        second = close - row * other.shape[2]
        relative, distance = relative.reshape(2, -1).take(close, axis=1), distance.take(close)
        return Pairs(copy.take(row), first.take(row), second, relative, distance)
    flat, second = _in_cells(one, other, float(limit.max(initial=0.0)))
    copy, first = np.divmod(flat, points)
    relative = other[:, copy, second] - one[:, copy, first]
    distance = np.sqrt(_squared(relative))
    near = Pairs(copy, first, second, relative, distance)
    return near.where(distance <= limit[copy, first])


def _compared(one: Array, other: Array) -> tuple[IntArray, Array]:
    """Positions of all points relative to each present one.

    Returns:
        Flat indices (copy, first), shape (r,), and relative positions, shape (2, r, n).
    """
    here = np.flatnonzero(np.isfinite(one[0]))
    relative: Array = other.take(here // one.shape[2], axis=1)
    relative -= one.reshape(2, -1).take(here, axis=1)[..., None]
    return here, relative


def _squared(relative: Array) -> Array:
    """Squared lengths of vectors, shape (2, ...)."""
    x, y = np.square(relative)
    squared: Array = np.add(x, y, out=x)
    return squared


def _in_cells(one: Array, other: Array, reach: float) -> tuple[IntArray, IntArray]:
    """Candidates: flat index (copy, first) and second, ascending, of all in neighbouring cells."""
    corner, extent = _box(one, other)
    side = max(reach * (1 + SLACK), extent / np.sqrt(other.shape[2]), np.finfo(float).tiny)
    wide = int(extent / side) + 3  # a border of empty cells, so that rows do not run together
    flat, place = _cells(one, corner, side)
    target, cell = _cells(other, corner, side)
    key = (target // other.shape[2] * wide + cell[0]) * wide + cell[1]
    order = np.argsort(key, kind="stable")
    key, second = key[order], (target % other.shape[2])[order]
    candidates = []
    for row in (-1, 0, 1):
        middle = (flat // one.shape[2] * wide + place[0] + row) * wide + place[1]
        start = np.searchsorted(key, middle - 1)
        counts = np.searchsorted(key, middle + 1, side="right") - start
        candidates.append((np.repeat(flat, counts), second[runs(start, counts)]))
    first, last = (np.concatenate(parts) for parts in zip(*candidates, strict=True))
    ascending = np.lexsort((last, first))
    return first[ascending], last[ascending]


def _box(one: Array, other: Array) -> tuple[Array, float]:
    """Lower left corner, shape (2, 1), and larger side of the bounding box."""
    points = np.concatenate([one.reshape(2, -1), other.reshape(2, -1)], axis=1)
    points = points[:, np.isfinite(points[0])]
    if not points.size:
        return np.zeros((2, 1)), 0.0
    corner = points.min(axis=1, keepdims=True)
    return corner, float((points - corner).max())


def _cells(points: Array, corner: Array, side: float) -> tuple[IntArray, IntArray]:
    """Flat indices of the present points, shape (n,), and their cells, shape (2, n)."""
    flat = points.reshape(2, -1)
    present = np.flatnonzero(np.isfinite(flat[0]))
    return present, ((flat[:, present] - corner) / side).astype(np.int64) + 1


def runs(start: IntArray, counts: IntArray) -> IntArray:
    """Concatenated runs of ``counts`` consecutive integers from each start."""
    before = np.cumsum(counts) - counts
    result: IntArray = np.repeat(start - before, counts) + np.arange(int(counts.sum()))
    return result


def nearest(one: Array, other: Array, count: int, *, limit: float = np.inf) -> Nearest:
    """The nearest points of each.

    Args:
        one: Points, shape (2, E, m).
        other: Points to choose from, shape (2, E, n).
        count: k.
        limit: Largest distance.
    """
    if one.shape[2] * other.shape[2] > COMPARED:
        return _nearest_in_cells(one, other, count, limit)
    here, relative = _compared(one, other)
    squared = _squared(relative)
    np.copyto(squared, np.inf, where=~(np.sqrt(squared) <= limit))
    which = _smallest(squared, count)
    least = squared.take(np.arange(len(here))[:, None] * other.shape[2] + which)
    shape, found = (len(here), count), np.s_[:, : which.shape[1]]
    copy, first = np.divmod(here, one.shape[2])
    result = Nearest(copy, first, np.full(shape, ABSENT), np.full(shape, np.inf))
    result.which[found], result.squared[found] = np.where(np.isinf(least), ABSENT, which), least
    return result


def _smallest(values: Array, count: int) -> IntArray:
    """Indices of the least values of each row, ascending, shape (n, up to k)."""
    if count == 1 and values.shape[1]:
        least: IntArray = values.argmin(axis=1)
        return least[:, None]
    order: IntArray = np.argsort(values, axis=1, kind="stable")
    return order[:, :count]


def _nearest_in_cells(one: Array, other: Array, count: int, limit: float) -> Nearest:
    """Double the distance until each point has its k nearest, or all."""
    _, copies, points = one.shape
    copy, first = np.nonzero(np.isfinite(one[0]))
    shape = (len(copy), count)
    result = Nearest(copy, first, np.full(shape, ABSENT), np.full(shape, np.inf))
    wanted = np.minimum(np.isfinite(other[0]).sum(axis=1), count)[:, None]
    looking = np.isfinite(one[0])
    _, extent = _box(one, other)
    reach = extent * np.sqrt((count + 1) / other.shape[2])
    while looking.any():
        reach = min(reach, limit)
        near = pairs(np.where(looking, one, np.nan), other, reach)
        _keep(result, near, points)
        enough = near.counts(copies, points) >= wanted
        looking &= ~(enough | (reach >= limit))
        reach *= 2
    return result


def _keep(result: Nearest, near: Pairs, points: int) -> None:
    """Write the nearest of the points with pairs; a copy has ``points`` of them."""
    squared = _squared(near.relative)
    order = np.lexsort((near.other, squared, near.one, near.copy))
    rank = ranks(near)
    kept = rank < result.which.shape[1]
    rows = result.copy * points + result.one
    place = (np.searchsorted(rows, (near.copy * points + near.one)[kept]), rank[kept])
    result.which[place] = near.other[order][kept]
    result.squared[place] = squared[order][kept]


def ranks(near: Pairs) -> IntArray:
    """Rank of each pair among those of its first point, from 0, shape (n,)."""
    n = len(near.one)
    change = (np.diff(near.copy) != 0) | (np.diff(near.one) != 0)
    starts = np.flatnonzero(np.concatenate([[True], change])) if n else np.zeros(0, np.int64)
    return np.arange(n) - np.repeat(starts, np.diff(np.append(starts, n)))
