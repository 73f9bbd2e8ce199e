"""A keyed hash that is linear in the update: the hash of a sum is the sum of the hashes.

A snapped update is an integer vector a times the grid. With odd 64-bit weights W of shape (2, P),
drawn from a key, h(u) = W a mod 2^64. Sums with integer coefficients commute with it:
h(sum_i t_i u_i) = sum_i t_i h(u_i) mod 2^64, so that a decoded sum is checked against what learners
reported about its units, although no unit is ever decoded.

A changed entry always shows. A change of several entries, all of them multiples of 2^v grid steps,
escapes with probability at most 2^-(126 - 2 v); 2^-126 unless the errors have a common factor.

Threat model: accidents. The key follows from the run's seed and every learner knows it, so that a
deliberate liar can build a wrong vector whose hash is right. To stop one, the key would have to be
drawn after all vectors have arrived, which costs a round trip in every iteration. A lie of this
kind is found by recomputing the units of the iteration.
"""

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, Matrix, Vector
from fullrank.common.updates import GRID

Words: TypeAlias = NDArray[np.uint64]
"""Hashes, shape (..., 2)."""

WORDS = 2
HASH_BYTES = 8 * WORDS
BLOCK = 1 << 14
"""Entries hashed at once, so that they stay in the cache."""


class LinearHash:
    """Hashes of vectors of up to P entries under one key.

    Args:
        length: P.
        key: Any integer; equal keys give equal hashes.
        grid: The grid of the updates.

    Attributes:
        weights: W, shape (2, P).

    >>> hashing = LinearHash(2, key=0, grid=0.5)
    >>> one, other = np.array([0.5, -1.0]), np.array([2.0, 1.5])
    >>> total = hashing.of(one) + hashing.of(other)
    >>> bool((hashing.of(one + other) == total).all())
    True
    """

    def __init__(self, length: int, *, key: int, grid: float = GRID) -> None:
        self.weights = _weights(key, length)
        self._grid = grid

    def of(self, values: FloatArray | Vector | Matrix, *, start: int = 0) -> Words:
        """Hash of each vector along the last axis, shape (..., 2).

        Args:
            values: Multiples of the grid below 2^63 grid, shape (..., entries).
            start: Index of the first entry, where the vector is hashed in blocks that are added up.
        """
        words = np.zeros((*values.shape[:-1], WORDS), np.uint64)
        for first in range(0, values.shape[-1], BLOCK):
            block = values[..., first : first + BLOCK]
            with np.errstate(invalid="ignore"):  # a corrupted update may be out of range
                integers = np.multiply(block, 1.0 / self._grid, dtype=np.float64).astype(np.int64)
            begin = start + first
            weights = self.weights[:, begin : begin + block.shape[-1]]
            words += integers.view(np.uint64) @ weights.T
        return words


def combine(coefficients: Matrix, hashes: Words) -> Words:
    """Hashes of integer combinations, shape (K, 2), from those of the units, shape (M, 2)."""
    return np.asarray(coefficients.astype(np.int64).view(np.uint64) @ hashes)


def to_bytes(words: Words) -> bytes:
    """A hash as ``HASH_BYTES`` bytes, little-endian."""
    return words.astype("<u8").tobytes()


def from_bytes(data: bytes) -> Words:
    """The hash that ``to_bytes`` wrote."""
    return np.frombuffer(data, "<u8").astype(np.uint64)


@lru_cache(maxsize=4)
def _weights(key: int, length: int) -> Words:
    """Odd weights, shape (2, P)."""
    generator = stream(key, "linear_hash")
    weights = generator.integers(2**63, size=(WORDS, length), dtype=np.uint64) * 2 + 1
    weights.setflags(write=False)
    return weights
