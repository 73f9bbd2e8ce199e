"""Tables by name: in memory, or in files that outlive the process."""

from pathlib import Path

import numpy as np
import pytest

from fullrank.common.errors import ConfigError, Corrupted, InvalidContribution, NotFound
from fullrank.replay.store import Store

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_restarted_store_serves_acknowledged_rows_before_anybody_opens_the_table(
    tmp_path: Path,
) -> None:
    Store(tmp_path, sync=False).open("t", row_size=3, capacity=4).append(0, ROWS)
    store = Store(tmp_path, sync=False)
    table = store.get("t")
    assert table is store.open("t", row_size=3, capacity=4)
    assert (table.tail, table.head) == (0, 2)
    assert table.gather(np.array([1, 0])).tolist() == [[3, 4, 5], [0, 1, 2]]


def test_without_a_directory_nothing_survives() -> None:
    Store(None, sync=False).open("t", row_size=3, capacity=4).append(0, ROWS)
    assert Store(None, sync=False).open("t", row_size=3, capacity=4).head == 0


@pytest.mark.parametrize("directory", [True, False])
@pytest.mark.parametrize(("row_size", "capacity"), [(4, 4), (3, 5), (6, 2)])
def test_another_size_is_refused(
    tmp_path: Path, directory: bool, row_size: int, capacity: int
) -> None:
    store = Store(tmp_path if directory else None, sync=False)
    table = store.open("t", row_size=3, capacity=4)
    with pytest.raises(ConfigError, match="row size 3 and capacity 4"):
        store.open("t", row_size=row_size, capacity=capacity)
    assert store.get("t") is table


def test_a_file_of_another_size_is_refused_and_kept(tmp_path: Path) -> None:
    Store(tmp_path, sync=False).open("t", row_size=3, capacity=4).append(0, ROWS)
    with pytest.raises(ConfigError, match="row size 3 and capacity 4, not 3 and 5"):
        Store(tmp_path, sync=False).open("t", row_size=3, capacity=5)
    assert Store(tmp_path, sync=False).open("t", row_size=3, capacity=4).head == 2


def test_a_damaged_file_is_named_and_kept(tmp_path: Path) -> None:
    Store(tmp_path, sync=False).open("t", row_size=3, capacity=4)
    path = tmp_path / "t.table"
    path.write_bytes(b"torn")
    with pytest.raises(Corrupted, match=r"t\.table is damaged"):
        Store(tmp_path, sync=False)
    assert path.read_bytes() == b"torn"


def test_memory_cannot_be_synced() -> None:
    with pytest.raises(ConfigError, match="give --run-dir"):
        Store(None, sync=True)


def test_rows_that_a_crash_of_the_machine_took_are_counted(tmp_path: Path) -> None:
    Store(tmp_path, sync=False).open("t", row_size=3, capacity=4).append(0, ROWS)
    path = tmp_path / "t.table"
    path.write_bytes(path.read_bytes().replace(ROWS[1].tobytes(), bytes(12)))
    store = Store(tmp_path, sync=False)
    assert store.get("t").head == 1
    assert store.lost == {"t": 1}


@pytest.mark.parametrize("name", ["", "../t", "a/b", ".", "a.b", "é", "x" * 65, "t\n"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidContribution, match="a name has letters"):
        Store(tmp_path / "tables", sync=False).open(name, row_size=3, capacity=4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("directory", [True, False])
def test_a_table_without_room_is_refused(tmp_path: Path, directory: bool) -> None:
    store = Store(tmp_path if directory else None, sync=False)
    with pytest.raises(ConfigError, match=r"lower replay\.capacity"):
        store.open("t", row_size=2**20, capacity=2**40)


def test_an_unknown_table_is_not_found() -> None:
    with pytest.raises(NotFound, match="there is no table 't'"):
        Store(None, sync=False).get("t")
