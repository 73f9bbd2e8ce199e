"""The fence outlives the replay service, and a damaged one is refused."""

import errno
import os
from pathlib import Path

import pytest

from fullrank.common.errors import ConfigError, StaleTerm, StorageFailed, VersionMismatch
from fullrank.common.types import RunTerm
from fullrank.replay import fence as fences
from fullrank.replay.fence import FILE, Fence


def write(directory: Path, content: str) -> None:
    (directory / "run").mkdir()
    (directory / "run" / FILE).write_text(content)


def test_a_restarted_service_refuses_whom_it_refused_before(tmp_path: Path) -> None:
    Fence(tmp_path).raise_to("run/t", RunTerm("run", 3))
    fence = Fence(tmp_path)
    fence.check("run/t", RunTerm("run", 3))
    for term in (1, 2, 3):
        with pytest.raises(StaleTerm):
            fence.raise_to("run/t", RunTerm("run", term))
    with pytest.raises(StaleTerm):
        fence.check("run/t", RunTerm("run", 2))
    fence.raise_to("run/t", RunTerm("run", 4))


def test_tables_are_fenced_each_on_its_own(tmp_path: Path) -> None:
    fence = Fence(tmp_path)
    fence.raise_to("run/a", RunTerm("run", 2))
    fence.raise_to("run/b", RunTerm("run", 1))
    fence.check("run/a", RunTerm("run", 2))
    fence.check("run/b", RunTerm("run", 1))


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"format": 1}', '{"format": 1, "tables": {"t": ["run"]}}']
)
def test_a_damaged_fence_is_an_error(tmp_path: Path, content: str) -> None:
    write(tmp_path, content)
    with pytest.raises(ConfigError, match="damaged"):
        Fence(tmp_path).check("run/t", RunTerm("run", 3))
    Fence(tmp_path).check("other/t", RunTerm("other", 1))  # another run has a fence of its own


@pytest.mark.parametrize(("content", "version"), [('{"format": 0}', 0), ('{"format": 2}', 2)])
def test_a_fence_of_another_format_is_refused_with_both_versions(
    tmp_path: Path, content: str, version: int
) -> None:
    write(tmp_path, content)
    with pytest.raises(VersionMismatch, match=f"has format {version}, .* up to 1"):
        Fence(tmp_path).opened("run/t")


def test_a_fence_from_before_formats_holds_the_tables_themselves(tmp_path: Path) -> None:
    write(tmp_path, '{"t": ["run", 3]}')
    with pytest.raises(StaleTerm, match="opened in term 3"):
        Fence(tmp_path).raise_to("run/t", RunTerm("run", 3))


def test_a_fence_of_another_run_came_with_a_copied_table_and_bars_nobody(tmp_path: Path) -> None:
    Fence(tmp_path).raise_to("run/t", RunTerm("run", 3))
    (tmp_path / "run").rename(tmp_path / "copy")
    fence = Fence(tmp_path)
    with pytest.raises(StaleTerm):
        fence.check("copy/t", RunTerm("copy", 1))  # it has not opened the table yet
    fence.raise_to("copy/t", RunTerm("copy", 1))
    fence.check("copy/t", RunTerm("copy", 1))


def test_a_full_disk_admits_nobody_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, held: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fence = Fence(tmp_path)
    fence.raise_to("run/t", RunTerm("run", 1))
    with monkeypatch.context() as patch:
        patch.setattr(fences, "write_fence", full)
        with pytest.raises(StorageFailed, match=f"{FILE}: No space left on device; make room"):
            fence.raise_to("run/t", RunTerm("run", 2))
    fence.check("run/t", RunTerm("run", 1))
    fence.raise_to("run/t", RunTerm("run", 2))
