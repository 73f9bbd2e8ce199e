"""Items of a sample, its transitions or whole episodes, as runs of consecutive rows.

A learner whose units read some of the items fetches these alone. The rows keep the places that they
have in the whole minibatch, so that a unit finds its items by number; the rows of the other items
are zero, except that an episode's last row holds its length, because an update averages over the
steps of all episodes.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray, IntArray

Items: TypeAlias = tuple[int, ...] | None
"""Numbers of items of a sample, ascending; None: all of them."""


class Runs(NamedTuple):
    """The rows of each item of a sample."""

    first: IntArray
    """Position of each item's first row, shape (size,)."""
    lengths: IntArray
    """Number of rows of each item, shape (size,)."""

    def positions(self, items: Items = None) -> IntArray:
        """Return the positions of the rows of these items, one item after the other."""
        if items is None:
            return consecutive(self.first, self.lengths)
        chosen = np.array(items, np.int64)
        return consecutive(self.first[chosen], self.lengths[chosen])


class Gathered(NamedTuple):
    """A minibatch of which some or all items were gathered."""

    rows: FloatArray
    """Rows of all items, shape (rows, row_size); zero where they were not gathered."""
    size_bytes: int
    """Size of the gathered rows, in bytes."""
    items: Items = None
    """Numbers of the gathered items."""


def consecutive(first: IntArray, lengths: IntArray) -> IntArray:
    """Return first_i, ..., first_i + lengths_i - 1 for each i in turn."""
    if (lengths == 1).all():
        return first
    before = np.cumsum(lengths) - lengths
    positions: IntArray = np.arange(lengths.sum()) + np.repeat(first - before, lengths)
    return positions


def rows_of_items(lengths: IntArray, items: Items) -> IntArray:
    """Return the numbers of the rows of these items within the minibatch.

    Raises:
        InvalidContribution: There is no item of such a number, or they are not ascending.
    """
    if items is not None and list(items) != sorted(set(items) & set(range(len(lengths)))):
        raise InvalidContribution(
            f"items {list(items)}: they are ascending numbers below the sample's {len(lengths)}"
        )
    return Runs(np.cumsum(lengths) - lengths, lengths).positions(items)


def spread(
    rows: FloatArray, lengths: IntArray, items: Sequence[int], *, length_column: int | None
) -> Gathered:
    """Place the rows of some items where they lie in the whole minibatch.

    Args:
        rows: Rows of these items, one item after the other.
        lengths: Number of rows of each item of the sample.
        items: Numbers of the items, ascending.
        length_column: Column of the length of an episode; None where items are transitions.

    Raises:
        InvalidContribution: As ``rows_of_items``, or the rows are not those of the items.
    """
    places = rows_of_items(lengths, tuple(items))
    if len(places) != len(rows):
        raise InvalidContribution(f"{len(rows)} rows for items of {len(places)}")
    whole = np.zeros((int(lengths.sum()), rows.shape[1]), np.float32)
    if length_column is not None:
        whole[np.cumsum(lengths) - 1, length_column] = lengths - 1
    whole[places] = rows
    return Gathered(whole, rows.nbytes, tuple(items))
