"""Run directories that earlier versions recorded are read, converted or refused in one line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cli.conftest import Command

from fullrank.replay.ring_file import RingFile
from fullrank.rpc.lock import lock_run
from fullrank.runs.checkpoint import newest
from fullrank.runs.event_history import read_history
from fullrank.runs.journal import read
from fullrank.runs.record import read_records

RECORDED = Path(__file__).parents[2] / "golden" / "runs"
BEFORE, EARLIER = RECORDED / "before_formats.zip", RECORDED / "format_1.zip"
NOW = RECORDED / "release_0_3.zip"


@pytest.fixture(params=[BEFORE, EARLIER, NOW], ids=lambda recorded: recorded.stem)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return _copy(request.param, tmp_path)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return _copy(BEFORE, tmp_path)


def _copy(recorded: Path, tmp_path: Path) -> Path:
    shutil.unpack_archive(recorded, tmp_path / "run")
    return tmp_path / "run"


def _contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_records_journal_and_checkpoints_of_every_format_are_read(recorded: Path) -> None:
    assert [record.iteration for record in read_records(recorded / "metrics.jsonl")] == [0, 1, 2, 3]
    assert newest(recorded / "checkpoints").iteration == 3
    first = min(int(path.name[:6]) for path in (recorded / "journal").iterdir())
    assert [entry.iteration for entry in read(recorded / "journal", first=first)] == list(
        range(first, 4)
    )


@pytest.mark.parametrize("recorded", [EARLIER, NOW], ids=["0.1", "0.3"], indirect=True)
def test_a_directory_of_0_1_or_of_today_needs_no_change(fullrank: Command, recorded: Path) -> None:
    run = recorded
    assert len(read_history(run).controller) > 10
    done = fullrank("migrate", "--apply", str(run))
    assert done.code == 0, done.error
    assert "nothing to change" in done.output


def test_an_older_one_is_listed_first_and_converted_when_asked(
    fullrank: Command, before: Path
) -> None:
    was = _contents(before)
    refused = fullrank("resume", "--local", str(before))
    assert refused.code == 2
    assert "'replay.sampler'" in refused.error
    listed = fullrank("migrate", str(before))
    assert "replay.sampler is called sampling.method" in listed.output
    assert "rows of 56 numbers, not 1704 of 64" in listed.output
    assert "nothing is written yet" in listed.output
    assert {path: was[path] for path in was} == {path: _contents(before)[path] for path in was}
    done = fullrank("migrate", "--apply", str(before))
    assert done.code == 0, done.error
    assert len(list((before / "history.before").iterdir())) == 5
    assert (before / "config.toml.before").read_bytes() == was[before / "config.toml"]
    assert json.loads((before / "run.json").read_text())["format"] == 1
    assert "nothing to change" in fullrank("migrate", str(before)).output


def test_the_rows_keep_their_positions_and_lose_zeros_alone(
    fullrank: Command, before: Path
) -> None:
    table = before / "replay" / "transitions.table"
    old = RingFile(table, sync=False)
    tail, head, rows = old.tail, old.head, old.rows[: old.head].copy()
    fullrank("migrate", "--apply", str(before))
    new = RingFile(table, sync=False)
    assert (new.tail, new.head, new.rows.shape[1]) == (tail, head, 56)
    gone = [column for column in range(64) if not rows[:, column].any()]
    mapped = np.delete(rows, gone, axis=1)
    kept = [column for column in range(56) if new.rows[:head, column].any()]
    np.testing.assert_array_equal(new.rows[:head][:, kept], mapped)


def test_what_does_not_fit_is_refused_in_one_line_and_left_alone(
    fullrank: Command, before: Path
) -> None:
    RingFile.create(before / "replay" / "transitions.table", row_size=5, capacity=9, sync=False)
    was = _contents(before)
    done = fullrank("migrate", "--apply", str(before))
    assert done.code != 0
    [line] = done.error.strip().splitlines()
    assert "has rows of 5 numbers, and this version keeps 56; it cannot be migrated" in line
    assert all(_contents(before)[path] == was[path] for path in was)


def test_a_run_that_goes_on_is_not_migrated(fullrank: Command, before: Path) -> None:
    with lock_run(before):
        done = fullrank("migrate", "--apply", str(before))
    assert done.code != 0
    assert "held by another controller" in done.error
