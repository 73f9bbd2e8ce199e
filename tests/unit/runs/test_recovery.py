"""The recoverable state is reported as it is, and damage never passes for a fresh start."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runs.test_journal import condemn

from fullrank.runs import checkpoint, recovery
from fullrank.runs.checkpoint import Arrays, save
from fullrank.runs.journal import Journal
from fullrank.runs.record import METRICS
from fullrank.runs.recovery import (
    checkpoints_lost,
    drop_condemned,
    examine,
    reaches_back_to,
    standing,
)

STATE: Arrays = {"algorithm.policy": np.zeros(4, np.float32), "rollout.episodes": np.arange(3)}


def committed(run_dir: Path, count: int, *, every: int = 4, keep: int = 2) -> None:
    """A run of the given number of iterations with periodic checkpoints."""
    journal = Journal(run_dir / "journal", term=1, first=0, confirm=lambda: None)
    for iteration in range(count):
        updates = np.full((2, 3), iteration, np.float32)
        journal.append(iteration, facts={"record": {}}, updates=updates)
        if (iteration + 1) % every == 0:
            directory = run_dir / "checkpoints"
            save(directory, iteration=iteration, arrays=STATE, facts={"term": 1}, keep=keep)
            oldest = int(checkpoint.saved(directory)[-1].name)
            journal.begin_segment(iteration + 1, keep_from=oldest + 1)
    journal.close()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_whole_run_has_no_faults(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    assert examine(tmp_path, published=10) == examine(tmp_path, published=0)
    assert examine(tmp_path, published=10).committed == 10
    assert examine(tmp_path, published=10).faults == ()


def test_a_record_that_a_crash_cut_short_is_no_fault(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    [segment] = (tmp_path / "journal").glob("000008-*")
    segment.write_bytes(segment.read_bytes()[:-5])
    found = examine(tmp_path, published=9)
    assert (found.committed, found.faults) == (9, ())


def test_what_was_published_and_is_gone_is_named(tmp_path: Path) -> None:
    committed(tmp_path, 11)
    [segment] = (tmp_path / "journal").glob("000008-*")
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 3])
    found = examine(tmp_path, published=11)
    assert found.committed == 9
    assert len(found.faults) == 1
    assert "iterations 9 to 10 were published" in found.faults[0]


def test_a_damaged_checkpoint_is_a_fault_even_if_the_journal_bridges_it(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    flip(tmp_path / "checkpoints" / "000007" / checkpoint.STATE)
    found = examine(tmp_path, published=10)
    assert found.committed == 10
    assert len(found.faults) == 1
    assert "000007" in found.faults[0]


def go_on(run_dir: Path, *, keep: int) -> None:
    """Commit three more iterations after ten, and save a checkpoint of the second."""
    journal = Journal(run_dir / "journal", term=2, first=10, confirm=lambda: None)
    for iteration in range(10, 13):
        journal.append(iteration, facts={"record": {}}, updates=np.zeros((2, 3), np.float32))
        if iteration == 11:
            directory = run_dir / "checkpoints"
            save(directory, iteration=iteration, arrays=STATE, facts={"term": 2}, keep=keep)
            oldest = int(checkpoint.saved(directory)[-1].name)
            journal.begin_segment(iteration + 1, keep_from=oldest + 1)
    journal.close()


@pytest.mark.parametrize("keep", [1, 2])
def test_what_a_run_prunes_that_goes_on_meanwhile_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    committed(tmp_path, 10, keep=keep)
    real = checkpoint.load

    def while_the_run_goes_on(path: Path) -> checkpoint.Checkpoint:
        monkeypatch.setattr(checkpoint, "load", real)
        go_on(tmp_path, keep=keep)
        return real(path)

    monkeypatch.setattr(checkpoint, "load", while_the_run_goes_on)
    found = examine(tmp_path, published=10)
    assert (found.committed, found.faults) == (13, ())


def test_a_checkpoint_that_is_damaged_and_stays_is_a_fault_while_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New checkpoints come with every look."""
    committed(tmp_path, 10, keep=10)
    directory = tmp_path / "checkpoints"
    flip(directory / "000007" / checkpoint.STATE)
    read, looks = recovery.standing, list[Path]()

    def while_the_run_goes_on(run_dir: Path) -> list[Path]:
        found = read(run_dir)
        looks.append(save(directory, iteration=10 + len(looks), arrays=STATE, facts={}, keep=99))
        assert len(looks) < 20
        return found

    monkeypatch.setattr(recovery, "standing", while_the_run_goes_on)
    (fault,) = examine(tmp_path, published=10).faults
    assert "000007" in fault
    assert len(looks) == 1


def test_a_run_whose_journal_is_damaged_is_not_looked_at_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(tmp_path, 10)
    [segment] = (tmp_path / "journal").glob("000008-*")
    flip(segment)
    read, looks = recovery.standing, list[Path]()

    def while_the_run_goes_on(run_dir: Path) -> list[Path]:
        directory = tmp_path / "checkpoints"
        looks.append(save(directory, iteration=10 + len(looks), arrays=STATE, facts={}, keep=2))
        assert len(looks) < 20
        return read(run_dir)

    monkeypatch.setattr(recovery, "standing", while_the_run_goes_on)
    (fault,) = examine(tmp_path, published=10).faults
    assert f"{segment}: damaged after" in fault


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    [segment] = (tmp_path / "journal").glob("000008-*")
    flip(segment)
    found = examine(tmp_path, published=10)
    assert found.committed < 10
    assert f"{segment}: damaged after" in found.faults[0]


def test_checkpoints_that_are_all_gone_are_missed(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    assert not checkpoints_lost(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    committed(tmp_path / "other", 2)
    assert checkpoints_lost(tmp_path)
    assert not checkpoints_lost(tmp_path / "other")
    assert any(
        "no checkpoint can be used" in each for each in examine(tmp_path, published=0).faults
    )


def test_a_run_that_has_published_and_keeps_neither_journal_nor_checkpoints_has_lost_them(
    tmp_path: Path,
) -> None:
    assert not checkpoints_lost(tmp_path)
    (tmp_path / METRICS).write_text("")
    assert not checkpoints_lost(tmp_path)
    (tmp_path / METRICS).write_text("{}\n")
    assert checkpoints_lost(tmp_path)


def test_no_checkpoint_of_a_condemned_iteration_stands(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    checkpoints = checkpoint.saved(tmp_path / "checkpoints")
    condemn(tmp_path / "journal", term=1, first=8)
    assert standing(tmp_path) == checkpoints
    condemn(tmp_path / "journal", term=2, first=7)  # the last iteration of the newest one
    assert standing(tmp_path) == checkpoints[1:]
    arrays = checkpoint.load(checkpoints[0]).arrays
    save(tmp_path / "checkpoints", iteration=7, arrays=arrays, facts={"term": 3}, keep=2)
    assert standing(tmp_path) == checkpoints


def test_a_condemned_checkpoint_whose_removal_is_cut_short_is_no_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(tmp_path, 10)
    condemn(tmp_path / "journal", term=2, first=7)

    def killed(path: Path) -> None:
        (path / checkpoint.MANIFEST).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        drop_condemned(tmp_path)
    assert examine(tmp_path, published=7).faults == ()


def test_the_journal_reaches_back_to_the_oldest_checkpoint_that_is_kept() -> None:
    checkpoints = [Path("000011"), Path("000007"), Path("000003")]
    assert reaches_back_to(checkpoints, keep=3) == 4
    assert reaches_back_to(checkpoints, keep=4) == 0
