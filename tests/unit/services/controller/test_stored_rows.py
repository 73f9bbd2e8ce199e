"""Rows that cannot be played again are in the store before the iterations that draw from them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fullrank.common.errors import OutOfRange
from fullrank.common.types import FloatArray
from fullrank.net.messages import sample_of
from fullrank.runs.store import SharedStore
from fullrank_controller.persistence import rows as stored_rows
from fullrank_controller.persistence.rows import StoredRows

DRAWN, SIZE = 100, 2


def rows(first: int, last: int) -> FloatArray:
    return np.repeat(np.arange(first, last, dtype=np.float32)[:, None], SIZE, axis=1)


class Table:
    """A table that has evicted what lies before ``tail``."""

    def __init__(self) -> None:
        self.tail = 0

    async def await_sample(self, message: Any, *, row_size: int) -> SimpleNamespace:
        positions = sample_of(message).positions()
        if positions.min() < self.tail:
            raise OutOfRange(f"row {positions.min()} was evicted")
        return SimpleNamespace(rows=rows(0, 10**4)[positions])


@pytest.fixture
def store(tmp_path: Path) -> SharedStore:
    (tmp_path / "run").mkdir()
    store = SharedStore(str(tmp_path / "store"), tmp_path / "run", keep=1)
    store.log.read()
    store.begin("a", digest="", last=0, instance=1)
    return store


def of_free_run(store: SharedStore, table: Table, *, head: int = 0) -> StoredRows:
    own = StoredRows(store, cast(Any, table), drawn=DRAWN, row_size=SIZE, each=True)
    own.opened(0, head)
    return own


def positions(store: SharedStore) -> list[int]:
    """The positions whose rows are stored, each of which is read back."""
    found = [store.read_rows(each) for each in store.log.rows]
    for segment, held in zip(store.log.rows, found, strict=True):
        np.testing.assert_array_equal(held, rows(segment.first, segment.last))
    return [position for each in store.log.rows for position in range(each.first, each.last)]


def commit(store: SharedStore, own: StoredRows, head: int) -> None:
    store.add("000000-000001", [b"record"])
    own.ship(head)


async def test_rows_that_replay_evicts_before_an_iteration_is_durable_are_stored_with_it(
    store: SharedStore,
) -> None:
    table = Table()
    own = of_free_run(store, table)
    for head in (10, 30):  # the second one draws while the first is being stored
        await own.take(head)
    table.tail = 30
    for head in (10, 30):
        commit(store, own, head)
        assert positions(store) == list(range(head))


async def test_a_checkpoint_of_a_free_run_needs_no_row_that_replay_has_evicted(
    store: SharedStore,
) -> None:
    """Containers play on while a slow store takes the checkpoint."""
    table = Table()
    own = of_free_run(store, table)
    for head in (10, 30):
        await own.take(head)
        commit(store, own, head)
    table.tail = 30
    since = store.log.next
    await own.store(30)
    store.checkpoint(since)
    assert [each.is_own for each in store.log.rows] == [True] * len(store.log.rows)
    assert positions(store) == list(range(30))


async def test_a_checkpoint_of_a_free_run_reads_from_replay_what_a_damaged_entry_has_lost(
    store: SharedStore, tmp_path: Path
) -> None:
    own = of_free_run(store, Table())
    await own.take(10)
    commit(store, own, 10)
    (tmp_path / "store" / store.log.rows[-1].name).write_bytes(b"torn")
    since = store.log.next
    await own.store(10)
    store.checkpoint(since)
    assert positions(store) == list(range(10))


async def test_rows_are_stored_also_where_another_call_has_stored_the_records(
    store: SharedStore,
) -> None:
    own = of_free_run(store, Table())
    await own.take(10)
    store.add("000000-000001", [b"record"])
    store.ship()
    own.ship(10)
    assert positions(store) == list(range(10))


async def test_no_entry_holds_more_rows_than_a_part_of_the_table_that_a_run_brings_along(
    store: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "CHUNK_BYTES", 4 * SIZE * 7)
    own = of_free_run(store, Table(), head=250)
    await own.take(260)
    commit(store, own, 260)
    assert positions(store) == list(range(160, 260))
    assert {each.last - each.first for each in store.log.rows[:-1]} == {7}
    await own.take(280)  # while others wait, parts wait with them
    await own.take(300)
    commit(store, own, 280)
    commit(store, own, 300)
    assert positions(store) == list(range(160, 300))
    assert max(each.last - each.first for each in store.log.rows) == 7
