"""An archive is written whole, and nothing of one that is damaged or hostile is used."""

import json
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runs.test_recovery import committed

from fullrank.common.errors import CheckpointUnusable, FullrankError, VersionMismatch
from fullrank.replay.mapped_table import TableFile
from fullrank.replay.ring_file import RingFile
from fullrank.runs import checkpoint, snapshot
from fullrank.runs.journal import Journal
from fullrank.runs.snapshot import CONTENTS, inspect, pack, take_snapshot, unpack

ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)


def run_of(path: Path, *, iterations: int = 10, rows: int = 12, capacity: int = 8) -> RingFile:
    """A run with a table in which the oldest rows are evicted."""
    committed(path, iterations)
    mark(path, head=10)
    (path / "config.toml").write_text("format = 1\n")
    (path / "run.json").write_text(json.dumps({"format": 1, "run": "a", "term": 1}))
    for name in ("numerics.json", "verdicts.json", "caveats.txt"):
        (path / name).write_text("[]\n")
    (path / "audit.key").write_text("secret")
    (path / "heads").mkdir()
    (path / "heads" / "0.npz").write_bytes(b"a container's")
    (path / "history").mkdir()
    (path / "history" / "controller.jsonl").write_bytes(b"{}\n{}\n{half")
    table = path / "replay" / "a" / "transitions.table"
    ring = RingFile.create(table, row_size=3, capacity=capacity, sync=False)
    grow(ring, rows)
    return ring


def mark(path: Path, *, head: int) -> None:
    """Have the newest checkpoint go on at a position of the table."""
    newest = checkpoint.newest(path / "checkpoints")
    facts = {"term": 1, "replay_head": head}
    checkpoint.save(
        path / "checkpoints", iteration=newest.iteration, arrays=newest.arrays, facts=facts, keep=2
    )


def grow(ring: RingFile, head: int) -> None:
    """Append rows up to a position, one at a time."""
    for position in range(ring.head, head):
        ring.write(position, ROWS[position % 20 : position % 20 + 1])
        ring.publish(max(0, position + 1 - ring.capacity), position + 1)


def contents(path: Path) -> dict[str, bytes]:
    files = (each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


def archived(tmp_path: Path) -> Path:
    run_of(tmp_path / "run")
    take_snapshot(tmp_path / "run", tmp_path / "copy")
    pack(tmp_path / "copy", tmp_path / "file")
    return tmp_path / "file"


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    unpack(archived(tmp_path), tmp_path / "new")
    assert contents(tmp_path / "new") == contents(tmp_path / "copy")
    assert inspect(tmp_path / "new").committed == 10
    table = TableFile(tmp_path / "new" / "replay" / "a" / "transitions.table")
    assert (table.tail, table.head) == (4, 12)
    first, rows = table.rows(0, 12)
    assert first == 4
    assert np.array_equal(rows, ROWS[4:12])


def test_a_table_keeps_its_holes(tmp_path: Path) -> None:
    run_of(tmp_path / "run", capacity=2**20)
    take_snapshot(tmp_path / "run", tmp_path / "copy")
    assert pack(tmp_path / "copy", tmp_path / "file") < 2**20
    unpack(tmp_path / "file", tmp_path / "new")
    table = (tmp_path / "new" / "replay" / "a" / "transitions.table").stat()
    assert 512 * table.st_blocks < table.st_size / 2


def test_a_run_that_goes_on_while_it_is_copied_gives_a_state_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are evicted, and iterations committed, between any two files."""
    ring = run_of(tmp_path / "run", iterations=8)
    journal = Journal(tmp_path / "run" / "journal", term=1, first=8, confirm=lambda: None)
    steps = iter(range(8, 1000))
    copyfile = snapshot.shutil.copyfile  # type: ignore[attr-defined]

    def copy(source: Path, target: Path) -> None:
        iteration = next(steps)
        grow(ring, ring.head + (iteration % 3 == 0))
        journal.append(iteration, facts={"record": {}}, updates=np.ones((2, 3), np.float32))
        copyfile(source, target)

    monkeypatch.setattr(snapshot.shutil, "copyfile", copy)  # type: ignore[attr-defined]
    found = take_snapshot(tmp_path / "run", tmp_path / "copy")
    assert 8 < found.committed <= next(steps)
    assert found.faults == ()


@pytest.mark.parametrize("name", ["checkpoints/000007/state.safetensors", "journal/000008-000001"])
def test_a_damaged_run_is_not_exported(tmp_path: Path, name: str) -> None:
    run_of(tmp_path / "run")
    [path] = (tmp_path / "run").glob(f"{name}*")
    flip(path)
    with pytest.raises(CheckpointUnusable, match=r"cannot be copied: .*damaged"):
        take_snapshot(tmp_path / "run", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_run_whose_transitions_are_elsewhere_is_not_exported(tmp_path: Path) -> None:
    run_of(tmp_path / "run")
    (tmp_path / "run" / "replay" / "a" / "transitions.table").unlink()
    with pytest.raises(CheckpointUnusable, match="its replay service keeps it in another"):
        take_snapshot(tmp_path / "run", tmp_path / "copy")


def flip(path: Path, at: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, bytes]]:
    """An archive and its files."""
    folder = tmp_path_factory.mktemp("whole")
    return archived(folder).read_bytes(), contents(folder / "copy")


@settings(max_examples=25)
@given(data=st.data())
def test_a_bit_flipped_or_an_end_cut_off_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    whole: tuple[bytes, dict[str, bytes]],
    data: st.DataObject,
) -> None:
    """Names, sizes and contents are covered; times and attributes of the ZIP format are not."""
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray(whole[0])
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    (folder / "file").write_bytes(content)
    found = None
    with suppress(FullrankError):
        unpack(folder / "file", folder / "new")
        found = contents(folder / "new")
    assert found in (None, whole[1])


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "/etc/passwd",
        "journal/../../outside.journal",
        "checkpoints/000007/other",
        "history/../run.json",
        "config.toml/",
        "audit.key",
        "a" * 300,
    ],
)
def test_a_name_that_no_run_has_is_refused(tmp_path: Path, name: str) -> None:
    hostile(tmp_path / "file", {name: b"x"})
    with pytest.raises(FullrankError, match="which no run has"):
        unpack(tmp_path / "file", tmp_path / "new")
    assert not (tmp_path / "outside").exists()


def test_sizes_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    hostile(tmp_path / "file", {"config.toml": b"x"}, sizes={"config.toml": 2**62})
    with pytest.raises(FullrankError, match="other files than"):
        unpack(tmp_path / "file", tmp_path / "new")
    assert not (tmp_path / "new" / "config.toml").exists()


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    hostile(tmp_path / "file", {}, form=2)
    with pytest.raises(VersionMismatch, match="has format 2"):
        unpack(tmp_path / "file", tmp_path / "new")


def hostile(
    path: Path,
    files: dict[str, bytes],
    *,
    sizes: dict[str, int] | None = None,
    again: tuple[str, ...] = (),
    form: int = 1,
) -> None:
    """An archive of any files with any announcement."""
    announced = {name: [(sizes or {}).get(name, len(data)), ""] for name, data in files.items()}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(CONTENTS, json.dumps({"format": form, "files": announced}))
        for name in (*files, *again):
            archive.writestr(name, files[name])
