"""A converted table has the chosen columns at the positions they had, and its name is on disk."""

from pathlib import Path

import numpy as np
import pytest

from fullrank.common import durable
from fullrank.replay import RingFile
from fullrank.replay.conversion import convert


def test_a_converted_file_keeps_positions_and_is_on_disk_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "transitions.table"
    old = RingFile.create(path, row_size=3, capacity=8, sync=False)
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    old.write(0, rows)
    old.publish(1, 5)
    synced: list[tuple[Path, int]] = []
    monkeypatch.setattr(
        durable, "sync_directory", lambda folder: synced.append((folder, path.stat().st_ino))
    )
    convert(path, np.array([0, 2]), capacity=4)
    new = RingFile(path, sync=False)
    assert (new.tail, new.head) == (1, 5)
    np.testing.assert_array_equal(new.rows[1:5], rows[1:, [0, 2]])
    assert synced[-1] == (tmp_path, path.stat().st_ino)
