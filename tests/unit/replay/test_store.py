"""Tables by name: in memory, or in files that outlive the process."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fullrank.common.errors import (
    ConfigError,
    Corrupted,
    InvalidContribution,
    NotFound,
    StorageFailed,
)
from fullrank.replay import store as store_module
from fullrank.replay.file_format import CURSOR, CURSORS_AT, sealed
from fullrank.replay.ring_file import RingFile
from fullrank.replay.store import Store, table_key

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_restarted_store_serves_acknowledged_rows_before_anybody_opens_the_table(
    tmp_path: Path,
) -> None:
    Store(tmp_path, sync=False).open("r/t", row_size=3, capacity=4).append(0, ROWS)
    store = Store(tmp_path, sync=False)
    table = store.get("r/t")
    assert table is store.open("r/t", row_size=3, capacity=4)
    assert (table.tail, table.head) == (0, 2)
    assert table.gather(np.array([1, 0])).tolist() == [[3, 4, 5], [0, 1, 2]]


def test_without_a_directory_nothing_survives() -> None:
    Store(None, sync=False).open("r/t", row_size=3, capacity=4).append(0, ROWS)
    assert Store(None, sync=False).open("r/t", row_size=3, capacity=4).head == 0


@pytest.mark.parametrize("directory", [True, False])
@pytest.mark.parametrize(
    ("row_size", "capacity", "remedy"),
    [
        (4, 4, "use another run directory"),
        (3, 5, "lower checkpoint.every, audit.every or collect.window"),
        (6, 2, "use another run directory"),
    ],
)
def test_another_size_is_refused_with_the_settings_on_which_it_depends(
    tmp_path: Path, directory: bool, row_size: int, capacity: int, remedy: str
) -> None:
    store = Store(tmp_path if directory else None, sync=False)
    table = store.open("r/t", row_size=3, capacity=4)
    with pytest.raises(ConfigError, match=f"row size 3 and capacity 4, not .*; {remedy}"):
        store.open("r/t", row_size=row_size, capacity=capacity)
    assert store.get("r/t") is table


@pytest.mark.parametrize("restarted", [True, False])
def test_a_table_with_more_capacity_than_a_run_needs_by_now_is_taken(
    tmp_path: Path, restarted: bool
) -> None:
    store = Store(tmp_path, sync=False)
    store.open("r/t", row_size=3, capacity=4).append(0, ROWS)
    store = Store(tmp_path, sync=False) if restarted else store
    table = store.open("r/t", row_size=3, capacity=2)
    assert (table.capacity, table.head) == (4, 2)


def test_a_file_of_another_size_is_refused_and_kept(tmp_path: Path) -> None:
    Store(tmp_path, sync=False).open("r/t", row_size=3, capacity=4).append(0, ROWS)
    with pytest.raises(ConfigError, match="row size 3 and capacity 4, not 3 and 5"):
        Store(tmp_path, sync=False).open("r/t", row_size=3, capacity=5)
    assert Store(tmp_path, sync=False).open("r/t", row_size=3, capacity=4).head == 2


def test_a_damaged_file_is_named_and_kept_and_ends_no_other_run(tmp_path: Path) -> None:
    store = Store(tmp_path, sync=False)
    store.open("r/t", row_size=3, capacity=4)
    store.open("other/t", row_size=3, capacity=4).append(0, ROWS)
    path = tmp_path / "r" / "t.table"
    path.write_bytes(b"torn")
    store = Store(tmp_path, sync=False)
    for use in (store.get, lambda key: store.open(key, row_size=3, capacity=4)):
        with pytest.raises(Corrupted, match=r"r/t\.table is damaged"):
            use("r/t")
    assert path.read_bytes() == b"torn"
    assert store.get("other/t").head == 2


@pytest.mark.parametrize(("tail", "head"), [(0, 2**64 - 1), (0, 2**62), (3, 2)])
def test_a_cursor_that_no_table_can_have_is_damage_and_ends_no_other_run(
    tmp_path: Path, tail: int, head: int
) -> None:
    store = Store(tmp_path, sync=False)
    store.open("a/t", row_size=3, capacity=4)
    store.open("b/t", row_size=3, capacity=4).append(0, ROWS)
    with (tmp_path / "a" / "t.table").open("r+b") as file:
        file.seek(CURSORS_AT[0])
        file.write(sealed(CURSOR.pack(9, tail, head, 0)))
    store = Store(tmp_path, sync=False)
    with pytest.raises(Corrupted, match=f"its cursor has tail {tail} and head {head}"):
        store.get("a/t")
    assert store.get("b/t").head == 2


def test_memory_cannot_be_synced() -> None:
    with pytest.raises(ConfigError, match="give --run-dir"):
        Store(None, sync=True)


def test_rows_that_a_crash_of_the_machine_took_are_counted(tmp_path: Path) -> None:
    Store(tmp_path, sync=False).open("r/t", row_size=3, capacity=4).append(0, ROWS)
    path = tmp_path / "r" / "t.table"
    path.write_bytes(path.read_bytes().replace(ROWS[1].tobytes(), bytes(12)))
    store = Store(tmp_path, sync=False)
    assert store.get("r/t").head == 1
    assert store.lost == {"r/t": 1}


@pytest.mark.parametrize("name", ["", "../t", "a/b", ".", "a.b", "é", "x" * 65, "t\n"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    for run, table in ((name, "t"), ("r", name)):
        with pytest.raises(InvalidContribution, match="a name has letters"):
            table_key(run, table)


def test_tables_are_made_within_the_bytes_of_all_of_them(tmp_path: Path) -> None:
    """The case of 41 sparse tables of 40 GB: each alone would fit on the disk."""
    most_bytes = 64 * 2**30
    store = Store(tmp_path, sync=False, most_bytes=most_bytes)
    large = {"row_size": 1000, "capacity": 10**7}
    store.open("a/t", **large)
    with pytest.raises(
        ConfigError, match=rf"1 tables of 1 runs take 400\d+ .* replay.total_bytes = {most_bytes};"
    ):
        store.open("b/t", **large)
    assert not (tmp_path / "b").exists()
    store.open("b/t", row_size=3, capacity=4)  # a smaller one fits
    reopened = Store(tmp_path, sync=False, most_bytes=1)
    assert list(reopened.tables) == ["a/t", "b/t"]  # a lower limit closes none


def test_tables_are_made_within_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_TABLES", 2)
    store = Store(None, sync=False)
    for run in ("a", "b"):
        store.open(f"{run}/t", row_size=3, capacity=4)
    with pytest.raises(ConfigError, match=r"holds 2 tables of 2 runs, 2 at most; remove"):
        store.open("c/t", row_size=3, capacity=4)
    store.open("a/t", row_size=3, capacity=4)


def test_a_folder_that_is_put_there_later_is_found(tmp_path: Path) -> None:
    """A copied run directory renames its tables when its controller begins as another run."""
    store = Store(tmp_path, sync=False)
    store.open("r/t", row_size=3, capacity=4).append(0, ROWS)
    (tmp_path / "r").rename(tmp_path / "other")
    assert store.open("other/t", row_size=3, capacity=4).head == 2


@pytest.mark.parametrize("directory", [True, False])
def test_a_table_without_room_is_refused(tmp_path: Path, directory: bool) -> None:
    store = Store(tmp_path if directory else None, sync=False)
    with pytest.raises(
        ConfigError, match=r"lower replay\.capacity, checkpoint\.every or audit\.every"
    ):
        store.open("r/t", row_size=2**20, capacity=2**40)


def test_a_lack_of_descriptors_passes_and_refuses_no_run_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    store = Store(tmp_path, sync=False)
    with monkeypatch.context() as patch:
        patch.setattr(RingFile, "create", exhausted)
        with pytest.raises(
            StorageFailed, match=r"cannot make .*/run/t\.table: Too many.*make room"
        ):
            store.open("run/t", row_size=2, capacity=4)
    store.open("run/t", row_size=2, capacity=4)
    with monkeypatch.context() as patch:
        patch.setattr(RingFile, "__init__", exhausted)
        again = Store(tmp_path, sync=False)  # a service that starts when there is none left
        with pytest.raises(StorageFailed, match=r"cannot open .*/run/t\.table: Too many"):
            again.open("run/t", row_size=2, capacity=4)
    again.open("run/t", row_size=2, capacity=4)


def test_an_unknown_table_is_not_found() -> None:
    with pytest.raises(NotFound, match="there is no table 'r/t'"):
        Store(None, sync=False).get("r/t")
