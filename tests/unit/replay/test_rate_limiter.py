"""No row is evicted before some sample could have drawn it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.replay.pace import RateLimiter
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table

CAPACITY = 5


def test_a_run_fills_its_table_before_anybody_samples() -> None:
    assert RateLimiter(window=CAPACITY).admits(10**9)


@given(st.lists(st.integers(0, CAPACITY)))
def test_whatever_is_admitted_every_row_is_sampled_from_before_it_goes(steps: list[int]) -> None:
    """Step 0 is a sample of the whole table; others append that many rows, if admitted."""
    table, limiter = (
        Table(MemoryStorage(CAPACITY, 1), capacity=CAPACITY),
        RateLimiter(window=CAPACITY),
    )
    table.append(0, np.zeros((CAPACITY, 1), np.float32))
    limiter.sampled(table.head)
    offered = table.head
    for rows in steps:
        if rows == 0:
            offered = table.head
            limiter.sampled(offered)
        elif limiter.admits(table.head + rows):
            table.append(table.head, np.zeros((rows, 1), np.float32))
        else:
            assert table.head + rows - CAPACITY > offered
        assert table.tail <= offered


def test_an_old_sample_asked_for_again_takes_nothing_back() -> None:
    limiter = RateLimiter(window=CAPACITY)
    limiter.sampled(9)
    limiter.sampled(3)
    assert limiter.admits(9 + CAPACITY)
