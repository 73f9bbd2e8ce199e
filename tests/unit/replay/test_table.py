"""The replay table against a model: a list of all rows ever appended."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fullrank.common.errors import InvalidContribution, OutOfRange
from fullrank.common.types import FloatArray
from fullrank.replay.samplers import MOST_EXTRA, EachOnce, Priority, RowDraw, Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table

CAPACITY, ROW_SIZE = 7, 3


def table(head: int = 0) -> Table:
    """A table with ``head`` rows, row p being (p, p, p)."""
    made = Table(MemoryStorage(CAPACITY, ROW_SIZE), capacity=CAPACITY)
    for position in range(head):
        made.append(position, rows_of([position]))
    return made


def rows_of(values: Sequence[float]) -> FloatArray:
    return np.repeat(np.array(values, dtype=np.float32)[:, None], ROW_SIZE, axis=1)


class TableAgainstModel(RuleBasedStateMachine):
    """Appends of every kind; the table must always hold the newest rows of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table()
        self.model: list[float] = []
        self.tail = 0

    def grow(self, first: int, values: list[float]) -> None:
        """Append the model's rows from ``first`` on, followed by ``values``."""
        head = self.table.append(first, rows_of(self.model[first:] + values))
        self.model += values
        self.tail = max(self.tail, len(self.model) - CAPACITY)
        assert head == len(self.model)

    @rule(values=st.lists(st.integers(-5, 5).map(float), max_size=CAPACITY))
    def append(self, values: list[float]) -> None:
        self.grow(len(self.model), values)

    @rule(data=st.data())
    def repeat_with_more(self, data: st.DataObject) -> None:
        """Repeat an append whose acknowledgement was lost, with new rows after it."""
        first = data.draw(st.integers(max(0, len(self.model) - CAPACITY), len(self.model)))
        room = CAPACITY - (len(self.model) - first)
        self.grow(first, data.draw(st.lists(st.integers(-5, 5).map(float), max_size=room)))

    @rule(data=st.data())
    def repeat_of_a_part(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.model)))
        last = data.draw(st.integers(first, min(len(self.model), first + CAPACITY)))
        assert self.table.append(first, rows_of(self.model[first:last])) == len(self.model)

    @rule(gap=st.integers(1, 5))
    def gap(self, gap: int) -> None:
        with pytest.raises(OutOfRange, match="would leave a gap"):
            self.table.append(len(self.model) + gap, rows_of([1.0]))

    @precondition(lambda self: len(self.model) > self.tail)
    @rule(data=st.data())
    def contradiction(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(self.tail, len(self.model) - 1))
        rows = rows_of(self.model[first:])
        rows[data.draw(st.integers(0, len(rows) - 1)), 0] += 1
        with pytest.raises(InvalidContribution, match="already stored with other values"):
            self.table.append(first, rows)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        head = data.draw(st.integers(0, len(self.model) + 2))
        self.table.truncate(head)
        if head <= self.tail or self.tail == len(self.model):
            self.model += [0.0] * (head - len(self.model))
            self.tail = head
        del self.model[head:]

    @invariant()
    def holds_the_newest_rows(self) -> None:
        assert self.table.head == len(self.model)
        assert self.table.tail == self.tail
        positions = np.arange(self.table.tail, self.table.head)
        np.testing.assert_array_equal(
            self.table.gather(positions), rows_of(self.model[self.tail :])
        )


test_a_table_holds_the_newest_rows_whatever_is_appended = TableAgainstModel.TestCase


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((2, ROW_SIZE + 1), np.float32), "do not fit a table of row size 3"),
        (np.zeros(ROW_SIZE, np.float32), "do not fit a table of row size 3"),
        (np.zeros((CAPACITY + 1, ROW_SIZE), np.float32), "8 rows exceed the capacity of 7"),
        (rows_of([np.nan]), "not finite"),
        (rows_of([np.inf]), "not finite"),
    ],
)
def test_impossible_rows_are_refused_and_change_nothing(rows: FloatArray, message: str) -> None:
    refusing = table(head=2)
    with pytest.raises(InvalidContribution, match=message):
        refusing.append(2, rows)
    assert refusing.head == 2
    np.testing.assert_array_equal(refusing.gather(np.arange(2)), rows_of([0, 1]))


def sample(**changes: int) -> Sample:
    values = {"seed": 0, "iteration": 0, "tail": 2, "head": 9, "size": 4} | changes
    return Sample(table="t", draw=RowDraw(), priority=None, once=None, **values)


def test_a_sample_of_what_is_held_is_served() -> None:
    table(head=9).check(sample())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": 10}, "position 9 is not written yet: head 9"),
        ({"tail": 1}, "position 1 was evicted: the tail is 2"),
        ({"tail": 9}, "an empty sample"),
        ({"size": 0}, "an empty sample"),
        ({"tail": -1}, "an empty sample"),
    ],
)
def test_a_sample_that_cannot_be_served_exactly_is_refused(
    changes: dict[str, int], message: str
) -> None:
    with pytest.raises(OutOfRange, match=message):
        table(head=9).check(sample(**changes))


RANGES = st.tuples(st.integers(0, 10**9), st.integers(1, 10**6)).map(lambda r: (r[0], r[0] + r[1]))


@given(st.integers(0, 2**31), st.integers(0, 10**6), RANGES, st.integers(1, 300))
def test_positions_are_pure_and_in_range(
    seed: int, iteration: int, bounds: tuple[int, int], size: int
) -> None:
    drawn = sample(seed=seed, iteration=iteration, tail=bounds[0], head=bounds[1], size=size)
    positions = drawn.positions()
    assert positions.shape == (size,)
    assert positions.dtype == np.int64
    assert ((positions >= bounds[0]) & (positions < bounds[1])).all()
    np.testing.assert_array_equal(positions, drawn.positions())


def test_iterations_and_seeds_draw_other_positions() -> None:
    wide = {"tail": 0, "head": 10**6}
    drawn = {
        sample(**wide, **key).positions().tobytes() for key in ({}, {"iteration": 1}, {"seed": 1})
    }
    assert len(drawn) == 3


def test_every_position_is_equally_likely() -> None:
    counts = np.bincount(sample(tail=0, head=10, size=20_000).positions(), minlength=10)
    assert (np.abs(counts - 2000) < 5 * np.sqrt(2000 * 0.9)).all()


def once(epoch: int, part: int, *, collection: int = 0, size: int, items: int) -> Sample:
    """A slice of a collection that lies in [5, 5 + items)."""
    drawn = EachOnce(collection=collection, epoch=epoch, part=part)
    return replace(sample(tail=5, head=5 + items, size=size), once=drawn)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_each_epoch_draws_every_item_of_a_collection_once(
    size: int, parts: int, epoch: int
) -> None:
    items = size * parts
    drawn = [once(epoch, part, size=size, items=items).positions() for part in range(parts)]
    assert sorted(np.concatenate(drawn).tolist()) == list(range(5, 5 + items))


def test_epochs_and_collections_are_drawn_in_other_orders() -> None:
    orders = {
        once(epoch, 0, collection=collection, size=50, items=50).positions().tobytes()
        for epoch in range(2)
        for collection in range(2)
    }
    assert len(orders) == 4


@pytest.mark.parametrize(("size", "items", "part"), [(4, 7, 0), (4, 8, 2), (9, 8, 0)])
def test_a_slice_that_a_collection_does_not_have_is_refused(
    size: int, items: int, part: int
) -> None:
    with pytest.raises(OutOfRange, match=f"slice {part} of {size} items each"):
        once(0, part, size=size, items=items).positions()


def test_a_priority_has_no_say_where_each_item_is_drawn_once() -> None:
    priority = Priority(first=0, count=1, gain=1.0)
    with pytest.raises(InvalidContribution, match="draws every item once, and has no priority"):
        table(head=9).check(replace(once(0, 0, size=2, items=4), priority=priority))


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (Priority(first=0, count=0, gain=1.0), "0 entries from 0 on, of rows of 3"),
        (Priority(first=2, count=2, gain=1.0), "2 entries from 2 on, of rows of 3"),
        (Priority(first=0, count=1, gain=0.0), "gain 0.0: it must be positive"),
        (Priority(first=0, count=1, gain=2.0**21), "at most 1048576"),
        (Priority(first=0, count=1, gain=np.nan), "gain nan"),
    ],
)
def test_a_priority_of_other_rows_is_refused(priority: Priority, message: str) -> None:
    with pytest.raises(InvalidContribution, match=message):
        table(head=9).check(replace(sample(), priority=priority))


def test_the_largest_rewards_do_not_overflow() -> None:
    most = Priority(first=0, count=1, gain=float(MOST_EXTRA))
    largest = np.array([[np.finfo(np.float32).max], [0]], np.float32)
    assert most.tickets(largest).tolist() == [1 + MOST_EXTRA, 1]
