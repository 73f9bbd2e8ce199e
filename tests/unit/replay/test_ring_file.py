"""The file of a table: after any crash it holds all acknowledged rows, or names the damage."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import Corrupted, InvalidContribution, StorageFailed, VersionMismatch
from fullrank.common.types import FloatArray
from fullrank.replay import limits
from fullrank.replay.file_format import CRC, CURSORS_AT, HEADER, sealed
from fullrank.replay.ring_file import RingFile
from fullrank.replay.table import Table

CAPACITY, ROW_SIZE, LONGEST, SECTOR = 7, 3, 4, 512
SYNC = pytest.mark.parametrize("sync", [True, False])
APPENDS = st.lists(st.integers(1, LONGEST), min_size=1, max_size=8)


@pytest.fixture(autouse=True, scope="module")
def few_slots_and_no_disk() -> Iterator[None]:
    """Leave little space beyond the capacity, so that few appends wrap around the ring.

    Disk syncs are stubbed; tests that depend on one simulate it or make it fail.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "APPEND_BYTES", 4 * ROW_SIZE * LONGEST)
        patch.setattr(os, "fdatasync", lambda file: None)
        patch.setattr(os, "fsync", lambda file: None)
        yield


def rows_of(positions: Sequence[int]) -> FloatArray:
    """Row p is (p + 1, p + 1, p + 1)."""
    return np.repeat(np.array(positions, np.float32)[:, None] + 1, ROW_SIZE, axis=1)


def made(path: Path, *, sync: bool) -> Table:
    storage = RingFile.create(path, row_size=ROW_SIZE, capacity=CAPACITY, sync=sync)
    return Table(storage, capacity=CAPACITY)


def reopened(path: Path, *, sync: bool = True) -> Table:
    storage = RingFile(path, sync=sync)
    return Table(storage, capacity=storage.capacity)


def grow(table: Table, appends: Sequence[int]) -> None:
    for count in appends:
        table.append(table.head, rows_of(range(table.head, table.head + count)))


def assert_true(table: Table) -> None:
    """Check that every readable row is the one at its position."""
    positions = range(table.tail, table.head)
    np.testing.assert_array_equal(table.gather(np.array(positions, np.int64)), rows_of(positions))


class Died(BaseException):
    """End of the process or of the machine."""


class Machine:
    """A file whose writes reach the disk when synced, or by chance; it dies after ``calls``.

    Args:
        calls: Writes and syncs before the end.
    """

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._versions: dict[int, list[bytes]] = {}
        self._pwrite, self._fdatasync = os.pwrite, os.fdatasync

    @contextmanager
    def running(self) -> Iterator[None]:
        with (
            mock.patch.object(os, "pwrite", self.pwrite),
            mock.patch.object(os, "fdatasync", self.fdatasync),
        ):
            yield

    def pwrite(self, file: int, data: memoryview, place: int) -> int:
        self._spend()
        sectors = range(place // SECTOR, (place + len(data) - 1) // SECTOR + 1)
        for sector in sectors:
            before = os.pread(file, SECTOR, sector * SECTOR)
            self._versions.setdefault(sector, [before])
        written = self._pwrite(file, data, place)
        for sector in sectors:
            self._versions[sector].append(os.pread(file, SECTOR, sector * SECTOR))
        return written

    def fdatasync(self, file: int) -> None:
        self._spend()
        self._versions.clear()

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Died

    def lose_power(self, path: Path, choose: Callable[[int, list[bytes]], bytes]) -> None:
        """Leave one of the past versions of each sector that was not synced."""
        with path.open("r+b", buffering=0) as file:
            for sector, versions in self._versions.items():
                os.pwrite(file.fileno(), choose(sector, versions), sector * SECTOR)


def run_until_death(table: Table, machine: Machine, appends: Sequence[int]) -> int:
    """Append until the machine dies; returns the acknowledged head."""
    acknowledged = 0
    with machine.running():
        try:
            for count in appends:
                rows = rows_of(range(acknowledged, acknowledged + count))
                acknowledged = table.append(acknowledged, rows)
        except Died:
            pass
    return acknowledged


@SYNC
@given(appends=APPENDS, calls=st.integers(0, 60))
def test_a_process_that_dies_anywhere_loses_nothing_acknowledged(
    sync: bool, appends: list[int], calls: int
) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "t.table"
        acknowledged = run_until_death(made(path, sync=sync), Machine(calls), appends)
        table = reopened(path, sync=sync)
        assert table.head >= acknowledged
        assert table.tail <= max(0, acknowledged - CAPACITY) or table.head > acknowledged
        assert table.tail == max(0, table.head - CAPACITY)
        assert_true(table)


@SYNC
@given(appends=APPENDS, calls=st.integers(0, 60), data=st.data())
def test_a_machine_that_dies_anywhere_shows_no_torn_row_and_loses_nothing_synced(
    sync: bool, appends: list[int], calls: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "t.table"
        machine = Machine(calls)
        acknowledged = run_until_death(made(path, sync=sync), machine, appends)
        machine.lose_power(path, lambda _, versions: data.draw(st.sampled_from(versions)))
        table = reopened(path, sync=sync)
        assert_true(table)
        if sync:
            assert table.head >= acknowledged
            assert table.head - table.tail == min(table.head, CAPACITY)
        grow(table, [LONGEST] * 3)
        assert_true(reopened(path, sync=sync))


def test_a_disk_that_takes_cursors_before_rows_loses_nothing_synced(tmp_path: Path) -> None:
    cursors = {place // SECTOR for place in CURSORS_AT}
    for calls in range(40):
        path, machine = tmp_path / f"{calls}.table", Machine(calls)
        acknowledged = run_until_death(made(path, sync=True), machine, [LONGEST] * 5)
        machine.lose_power(path, lambda sector, versions: versions[-1 if sector in cursors else 0])
        table = reopened(path)
        assert table.head >= acknowledged
        assert_true(table)


@given(appends=APPENDS, data=st.data())
def test_a_byte_changed_anywhere_does_no_harm_or_is_named(
    appends: list[int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "t.table"
        grow(made(path, sync=True), appends)
        content = bytearray(path.read_bytes())
        parts = [(0, 36), (4096, 36), (4608, 36), (8192, len(content) - 8192)]
        start, size = data.draw(st.sampled_from(parts))
        content[start + data.draw(st.integers(0, size - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        check_sound_or_named(path, sum(appends))


@given(appends=APPENDS, data=st.data())
def test_a_file_cut_short_anywhere_is_named(appends: list[int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "t.table"
        grow(made(path, sync=True), appends)
        os.truncate(path, data.draw(st.integers(0, path.stat().st_size - 1)))
        with pytest.raises(Corrupted, match=r"t\.table is damaged: .*; restore it from a copy"):
            RingFile(path, sync=True)


def check_sound_or_named(path: Path, head: int) -> None:
    try:
        table = reopened(path)
    except Corrupted:
        return
    assert (table.tail, table.head) == (max(0, head - CAPACITY), head)
    assert_true(table)


@pytest.mark.parametrize("position", range(2, 9))
def test_a_changed_row_that_can_be_read_is_named(tmp_path: Path, position: int) -> None:
    path = tmp_path / "t.table"
    grow(made(path, sync=True), [4, 4, 1])
    content, row = path.read_bytes(), rows_of([position]).tobytes()
    path.write_bytes(content.replace(row, row[:-1] + b"\1"))
    with pytest.raises(Corrupted, match=f"the row at position {position} is not what was stored"):
        RingFile(path, sync=True)


def test_a_row_is_not_believed_in_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    grow(made(path, sync=True), [2])
    content, row = path.read_bytes(), 4 * ROW_SIZE
    check, rows = 8192, content.index(rows_of([0]).tobytes())
    swapped = bytearray(content)
    for start, size in ((check, 4), (rows, row)):
        swapped[start + size : start + 2 * size] = content[start : start + size]
    path.write_bytes(swapped)
    with pytest.raises(Corrupted, match="the row at position 1 is not what was stored"):
        RingFile(path, sync=True)


def test_an_append_that_a_crash_cuts_off_evicts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    table = made(path, sync=True)
    grow(table, [4, 3])
    with mock.patch.object(os, "fdatasync", side_effect=Died), pytest.raises(Died):
        grow(table, [2])
    path.write_bytes(path.read_bytes().replace(rows_of([8]).tobytes(), bytes(4 * ROW_SIZE)))
    survivor = reopened(path)
    assert (survivor.tail, survivor.head) == (1, 8)
    assert_true(survivor)


@SYNC
def test_forgotten_rows_stay_forgotten(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "t.table"
    table = made(path, sync=sync)
    grow(table, [4, 4, 2])
    table.truncate(6)
    table = reopened(path, sync=sync)
    assert (table.tail, table.head) == (3, 6)
    assert_true(table)


@SYNC
@given(appends=APPENDS, calls=st.integers(0, 30), data=st.data())
def test_rows_that_were_dropped_never_come_back_in_place_of_later_ones(
    sync: bool, appends: list[int], calls: int, data: st.DataObject
) -> None:
    """A machine dies after other rows were written in the places of the dropped ones."""
    with tempfile.TemporaryDirectory() as home:
        path, machine, dropped = Path(home) / "t.table", Machine(calls), False
        table = made(path, sync=sync)
        grow(table, appends)
        head = data.draw(st.integers(0, table.head))  # evicted rows are dropped, too
        with machine.running(), suppress(Died):
            table.truncate(head)
            dropped = True
            table.append(head, -rows_of(range(head, head + LONGEST)))
        machine.lose_power(path, lambda _, versions: data.draw(st.sampled_from(versions)))
        table = reopened(path, sync=sync)
        positions = np.arange(table.tail, table.head)
        found = table.gather(positions)
        kept = rows_of(positions.tolist())
        if dropped:
            kept[positions >= head] *= -1
        np.testing.assert_array_equal(found if dropped else abs(found), kept)


def lose_rows(path: Path, disk: bytes) -> None:
    """Lose power when the cursors alone, of all that was written since ``disk``, were on disk."""
    cursors = slice(CURSORS_AT[0], CURSORS_AT[-1] + SECTOR)
    content = bytearray(disk)
    content[cursors] = path.read_bytes()[cursors]
    path.write_bytes(content)


def cut_off_append(path: Path, table: Table, first: int, *, sync: bool) -> Table:
    """Append three other rows until the first cursor is written, lose them, and open the table."""
    disk = path.read_bytes()
    with Machine(3).running(), suppress(Died):
        table.append(first, -rows_of(range(first, first + 3)))
    lose_rows(path, disk)
    return reopened(path, sync=sync)


@pytest.mark.parametrize(
    ("appends", "head"), [([4, 2], 3), ([4, 4, 2], 0)], ids=["held", "evicted"]
)
def test_rows_that_were_dropped_do_not_come_back_in_any_later_crash(
    tmp_path: Path, appends: list[int], head: int
) -> None:
    path = tmp_path / "t.table"
    table = made(path, sync=False)
    grow(table, appends)
    table.truncate(head)
    for _ in range(3):
        disk = path.read_bytes()
        table.append(head, -rows_of(range(head, head + 3)))
        lose_rows(path, disk)
        table = reopened(path, sync=False)
        assert table.head == head
    assert_true(table)


@SYNC
def test_rows_whose_truncation_was_cut_off_anywhere_do_not_come_back(
    tmp_path: Path, sync: bool
) -> None:
    for calls in range(9):
        path = tmp_path / f"{calls}.table"
        table = made(path, sync=sync)
        grow(table, [4, 2])
        with Machine(calls).running(), suppress(Died):
            table.truncate(3)
        table = reopened(path, sync=sync)
        table.truncate(3)
        table = cut_off_append(path, table, 3, sync=sync)
        assert table.head == 3
        assert_true(table)


@SYNC
def test_rows_whose_append_was_cut_off_do_not_come_back_in_place_of_others(
    tmp_path: Path, sync: bool
) -> None:
    for calls in range(1, 5):
        path = tmp_path / f"{calls}.table"
        run_until_death(made(path, sync=sync), Machine(calls), [3])
        table = reopened(path, sync=sync)
        if not table.head:
            assert cut_off_append(path, table, 0, sync=sync).head == 0


@SYNC
@pytest.mark.parametrize("head", [1, 3, 40])
def test_a_table_without_rows_before_its_head_begins_there(
    tmp_path: Path, sync: bool, head: int
) -> None:
    path = tmp_path / "t.table"
    table = made(path, sync=sync)
    grow(table, [4, 4, 2])
    table.truncate(3)
    table.truncate(head)
    table = reopened(path, sync=sync)
    assert (table.tail, table.head) == (head, head)
    grow(table, [4])
    table = reopened(path, sync=sync)
    assert (table.tail, table.head) == (head, head + 4)
    assert_true(table)


def test_rows_taken_without_a_sync_are_synced_when_the_file_is_opened_with_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.table"
    grow(made(path, sync=False), [4])
    reopened(path, sync=True)
    content = path.read_bytes().replace(rows_of([2]).tobytes(), bytes(4 * ROW_SIZE))
    path.write_bytes(content)
    with pytest.raises(Corrupted, match="position 2"):
        reopened(path, sync=False)


def test_a_full_disk_is_named_and_appends_go_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    table = made(path, sync=True)
    grow(table, [3])
    with (
        mock.patch.object(os, "pwrite", side_effect=OSError(28, "No space left on device")),
        pytest.raises(StorageFailed, match=r"t\.table: No space left on device; make room"),
    ):
        grow(table, [1])
    assert table.head == 3
    grow(table, [2])
    assert reopened(path).head == 5


def test_an_empty_file_takes_no_room_on_a_tmpfs() -> None:
    """Reading a hole there through a mapping takes some, and is fatal where there is none."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        path = Path(home) / "t.table"
        RingFile.create(path, row_size=ROW_SIZE, capacity=2**20, sync=False)
        RingFile(path, sync=False)
        assert 512 * path.stat().st_blocks < 2**16


def test_after_a_failed_sync_nothing_is_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    table = made(path, sync=True)
    with (
        mock.patch.object(os, "fdatasync", side_effect=OSError(5, "Input/output error")),
        pytest.raises(StorageFailed, match="cannot sync"),
    ):
        grow(table, [2])
    with pytest.raises(StorageFailed, match="restart the service"):
        grow(table, [2])
    assert table.head == 0


def test_a_write_that_the_system_cuts_short_is_finished(tmp_path: Path) -> None:
    path, pwrite = tmp_path / "t.table", os.pwrite
    table = made(path, sync=True)
    with mock.patch.object(os, "pwrite", lambda file, data, at: pwrite(file, data[:5], at)):
        grow(table, [4, 4])
    assert_true(reopened(path))


def test_an_append_longer_than_the_room_for_it_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t.table", sync=False)
    with pytest.raises(InvalidContribution, match="5 rows: an append has at most 4"):
        table.append(0, rows_of(range(5)))


def test_a_file_that_was_not_finished_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    with mock.patch.object(Path, "replace", side_effect=Died), pytest.raises(Died):
        made(path, sync=True)
    assert not path.exists()
    assert made(path, sync=True).head == 0


def test_a_damaged_version_is_not_taken_for_another_format(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    made(path, sync=True)
    path.write_bytes(path.read_bytes().replace(b"FRTABLE1", b"FRTABLE2", 1))
    with pytest.raises(Corrupted, match="its header is not that of a table"):
        RingFile(path, sync=True)


def test_a_file_of_another_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    made(path, sync=True)
    size = HEADER.size + CRC.size
    content = path.read_bytes()
    other = sealed(content[: HEADER.size].replace(b"FRTABLE1", b"FRTABLE2"))
    path.write_bytes(other + content[size:])
    with pytest.raises(VersionMismatch, match=r"has format 2, .* reads format 1"):
        RingFile(path, sync=True)
