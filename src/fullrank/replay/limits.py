"""Bytes of transitions that move at once, and tables that one service holds.

A single row always moves, however large it is.
"""

APPEND_BYTES = 4 * 2**20
"""Rows of one append, at most."""

MINIBATCH_BYTES = 2**30
"""One minibatch, at most, and all minibatches that the service holds at a time."""

POSITIONS = 2**62
"""One past the largest position, far below what 64 bits hold; capacities lie below it, too."""

MOST_TABLES = 128
"""Tables of one service, of two descriptors each: a quarter of the usual limit of a process."""


def rows_per_append(row_bytes: int) -> int:
    """Most rows of one append."""
    return max(1, APPEND_BYTES // row_bytes)


def rows_per_minibatch(row_bytes: int) -> int:
    """Most rows of one minibatch."""
    return max(1, MINIBATCH_BYTES // row_bytes)
