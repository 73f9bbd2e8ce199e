"""A mapped table gathers what the writing process holds, or says that it cannot."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import Corrupted, NotFound
from fullrank.replay import file_format
from fullrank.replay.mapped_table import MappedTable, TableFile
from fullrank.replay.ring_file import RingFile
from fullrank.replay.samplers import EpisodeDraw, Priority, Sample
from fullrank.replay.table import TABLE, Table

CAPACITY, ROW_SIZE, SIZE = 50, 4, 64
PRIORITIES = pytest.mark.parametrize("priority", [None, Priority(first=1, count=2, gain=3.0)])


@pytest.fixture
def storage(tmp_path: Path) -> RingFile:
    path = tmp_path / "transitions.table"
    return RingFile.create(path, row_size=ROW_SIZE, capacity=CAPACITY, sync=False)


@pytest.fixture
def table(storage: RingFile) -> Table:
    return Table(storage, capacity=CAPACITY)


def append(table: Table, count: int) -> None:
    values = np.arange(table.head, table.head + count, dtype=np.float32)
    table.append(table.head, values[:, None] % np.array([7, 5, 3, 2], np.float32))


def sample_of(
    table: Table, *, iteration: int = 0, priority: Priority | None = None, size: int = SIZE
) -> Sample:
    return Sample(
        table=TABLE,
        seed=1,
        iteration=iteration,
        tail=table.tail,
        head=table.head,
        size=size,
        priority=priority,
    )


def damage(storage: RingFile, position: int) -> None:
    """Change the first entry of a row in the file."""
    layout = file_format.FileLayout(row_size=ROW_SIZE, slots=len(storage.rows))
    place = layout.rows_at + layout.row_bytes * (position % layout.slots)
    with storage.path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\x55", place + 3)


@PRIORITIES
def test_it_gathers_the_writers_minibatches_as_the_ring_turns(
    storage: RingFile, table: Table, priority: Priority | None
) -> None:
    mapped = MappedTable(storage.path, storage.instance)
    for iteration in range(30):
        append(table, 11)
        sample = sample_of(table, iteration=iteration, priority=priority)
        gathered = mapped.gather(sample)
        assert gathered is not None
        np.testing.assert_array_equal(gathered.rows, table.minibatch(sample))
    assert table.tail > CAPACITY


def test_evicted_rows_are_refused(storage: RingFile, table: Table) -> None:
    mapped = MappedTable(storage.path, storage.instance)
    append(table, CAPACITY)
    sample = sample_of(table)
    append(table, 1)
    assert mapped.gather(sample) is None


def test_rows_evicted_while_they_are_gathered_are_refused(
    storage: RingFile, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slots still hold the rows then, so that their checksums match."""
    mapped = MappedTable(storage.path, storage.instance)
    append(table, CAPACITY)
    sample, gather = sample_of(table), np.take

    def slow_take(*args: object, **options: object) -> object:
        monkeypatch.undo()
        append(table, 1)
        return gather(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "take", slow_take)
    assert mapped.gather(sample) is None


def test_rows_that_are_not_written_yet_are_refused(storage: RingFile, table: Table) -> None:
    mapped = MappedTable(storage.path, storage.instance)
    append(table, 10)
    sample = sample_of(table)
    table.truncate(5)
    assert mapped.gather(sample) is None


def test_a_torn_row_is_refused(storage: RingFile, table: Table) -> None:
    mapped = MappedTable(storage.path, storage.instance)
    append(table, 1)
    damage(storage, 0)
    assert mapped.gather(sample_of(table)) is None


def test_every_readable_row_is_checked(storage: RingFile, table: Table) -> None:
    append(table, CAPACITY)
    append(table, 11)
    TableFile(storage.path).check()
    for position in (table.tail, table.head - 1):
        damage(storage, position)
        said = f"the row at position {table.tail} is not what was stored"
        with pytest.raises(Corrupted, match=said):
            TableFile(storage.path).check()
        with pytest.raises(Corrupted, match=said):
            TableFile(storage.path).gather(sample_of(table, size=1000))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"priority": Priority(first=1, count=2, gain=3.0), "size": 1},
        {"draw": EpisodeDraw(length=3, newest=9), "size": 1},
    ],
    ids=["drawn", "counted", "examined"],
)
def test_a_damaged_row_is_served_to_none_by_the_process_that_holds_the_file(
    storage: RingFile, table: Table, changes: dict[str, Any]
) -> None:
    """Wherever a row decides what is drawn, its checksum is compared, too."""
    append(table, CAPACITY)
    wanted = replace(sample_of(table, size=1000), **changes)
    damage(storage, 7)
    said = f"{storage.path} is damaged: the row at position 7 is not what was stored"
    with pytest.raises(Corrupted, match=said):
        table.minibatch(wanted)
    with pytest.raises(Corrupted, match=said):
        TableFile(storage.path).gather(wanted)


def test_a_row_that_is_repeated_is_not_compared_with_a_damaged_one(
    storage: RingFile, table: Table
) -> None:
    append(table, 10)
    stored = table.gather(np.arange(10))
    damage(storage, 7)
    with pytest.raises(Corrupted, match="the row at position 7 is not what was stored"):
        table.append(0, stored)


def test_rows_evicted_while_they_are_checked_do_not_count(
    storage: RingFile, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(table, CAPACITY)
    file, gather = TableFile(storage.path), np.take

    def slow_take(*args: object, **options: object) -> object:
        monkeypatch.undo()
        append(table, 11)
        damage(storage, 0)
        return gather(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "take", slow_take)
    file.check()


def test_only_the_file_that_the_service_has_opened_is_mapped(storage: RingFile) -> None:
    with pytest.raises(NotFound, match="is not the file that the replay service has opened"):
        MappedTable(storage.path, bytes(16))
    reopened = RingFile(storage.path, sync=False)
    assert reopened.instance != storage.instance
    MappedTable(storage.path, reopened.instance)


def test_a_file_that_was_opened_anew_is_not_read(storage: RingFile, table: Table) -> None:
    append(table, 10)
    mapped = MappedTable(storage.path, storage.instance)
    assert mapped.gather(sample_of(table)) is not None
    RingFile(storage.path, sync=False)
    assert mapped.gather(sample_of(table)) is None


@pytest.mark.parametrize("content", [None, b"", bytes(100_000), b"FRTABLE2" + bytes(100_000)])
def test_what_is_not_a_table_is_not_mapped(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "transitions.table"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NotFound, match="the table cannot be mapped"):
        MappedTable(path, bytes(16))


@pytest.mark.parametrize(("row_size", "capacity", "slots"), [(0, 5, 9), (4, 0, 9), (4, 9, 9)])
def test_a_header_of_a_table_that_holds_nothing_is_damage(
    tmp_path: Path, row_size: int, capacity: int, slots: int
) -> None:
    header = file_format.HEADER.pack(b"FRTABLE1", row_size, capacity, slots)
    with pytest.raises(Corrupted, match="hold no"):
        file_format.read_header(tmp_path, file_format.sealed(header))


def test_a_path_that_would_block_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "transitions.table")
    with pytest.raises(NotFound, match="it is a FIFO, not a regular file"):
        MappedTable(tmp_path / "transitions.table", b"x" * 16)
