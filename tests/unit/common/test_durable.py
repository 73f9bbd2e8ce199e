"""Files are replaced whole or not at all."""

import os
from pathlib import Path

import pytest

from fullrank.common.durable import rename, replace_bytes, replace_file, replace_text


def test_a_file_is_replaced_when_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    replace_text(path, "old")
    with replace_file(path) as file:
        file.write("né".encode())
        assert path.read_text() == "old"
    assert path.read_text(encoding="utf-8") == "né"


def test_a_block_that_raises_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        _write_half(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_permissions_are_those_asked_for_whatever_a_crash_left(tmp_path: Path) -> None:
    (tmp_path / ".key").write_bytes(b"left by a crash")
    replace_bytes(tmp_path / "key", b"secret", mode=0o600)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "key").read_bytes() == b"secret"


def test_a_new_name_is_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[tuple[Path, list[str]]]()
    monkeypatch.setattr(
        "fullrank.common.durable.sync_directory",
        lambda directory: synced.append((directory, sorted(os.listdir(directory)))),
    )
    (tmp_path / "scratch").mkdir()
    rename(tmp_path / "scratch", tmp_path / "run")
    replace_text(tmp_path / "file", "new")
    assert synced == [(tmp_path, ["run"]), (tmp_path, ["file", "run"])]


def _write_half(path: Path) -> None:
    with replace_file(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
