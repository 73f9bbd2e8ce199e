"""Authorship: the writer of an episode, in the last entries of its last row.

``[... | writer | sequence | version | number]``: whole numbers below 2^48, each in two entries of
24 bits, which float32 holds exactly; the entries are 0 in all other rows. As facts of the rows they
are stored, synced, checked and evicted with them, and a restarted service reads them back.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fullrank.common.types import FloatArray, IntArray

ENTRIES = 8
"""Entries of a row that hold the authorship."""
MOST = 2**48 - 1
"""Largest number in an authorship."""
_DIGIT = 2**24


class Authorship(NamedTuple):
    """Writer of an episode, and the parameters that played it."""

    writer: int
    """Drawn at random when the writer's process starts."""
    sequence: int
    """Number of the episode among those of its writer, from 1 on; it rises, possibly with gaps."""
    version: int
    """Committed iterations behind the parameters with which the episode began."""
    number: int
    """Number of the episode in its table, from 1 on."""


def sign(rows: FloatArray, authorship: Authorship) -> None:
    """Write an authorship into the last of an episode's rows, and zeros into the others.

    Args:
        rows: Shape (n, row_size); the last ``ENTRIES`` entries of each are overwritten.
        authorship: Numbers up to ``MOST``.
    """
    rows[:, -ENTRIES:] = 0.0
    rows[-1, -ENTRIES:] = np.stack(np.divmod(authorship, _DIGIT), axis=1).ravel()


def authorships(rows: FloatArray) -> IntArray:
    """Read the authorship in each row, 0 where there is none, shape (n, 4).

    Args:
        rows: Shape (n, row_size), or its last ``ENTRIES`` entries alone.
    """
    digits = rows[:, -ENTRIES:].astype(np.int64).reshape(len(rows), ENTRIES // 2, 2)
    numbers: IntArray = digits[..., 0] * _DIGIT + digits[..., 1]
    return numbers


def joined(episodes: Sequence[FloatArray], authors: Sequence[Authorship]) -> FloatArray:
    """Put episodes one after the other and sign them, shape (rows, entries + ``ENTRIES``).

    Args:
        episodes: At least one, each of shape (rows, entries).
        authors: Their authorships.
    """
    size = episodes[0].shape[1]
    rows = np.empty((sum(map(len, episodes)), size + ENTRIES), np.float32)
    start = 0
    for episode, author in zip(episodes, authors, strict=True):
        part = rows[start : start + len(episode)]
        part[:, :size] = episode
        sign(part, author)
        start += len(episode)
    return rows
