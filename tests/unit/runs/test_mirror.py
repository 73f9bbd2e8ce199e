"""A directory and its mirror complete each other."""

import os
from pathlib import Path

import pytest
from tests.unit.runs.mirrored import Controller, assert_alike, committed
from tests.unit.runs.test_recovery import flip

from fullrank.common.errors import RunDirectoryInUse, StorageFailed, VersionMismatch
from fullrank.runs import mirrored
from fullrank.runs.checkpoint import saved
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.journal import read
from fullrank.runs.mirror import take_over
from fullrank.runs.objects import DirectoryObjects


@pytest.mark.parametrize("damaged", ["state.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_is_replaced_by_its_mirrored_copy(
    tmp_path: Path, damaged: str
) -> None:
    """Going back to an older one would cut replay behind the rows that a standby needs."""
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(8)
    flip(saved(tmp_path / "run" / "checkpoints")[0] / damaged)
    assert Controller(tmp_path / "run", place).begins == 8
    assert committed(tmp_path / "run") == 8
    take_over(place, tmp_path / "other")
    assert committed(tmp_path / "other") == 8


@pytest.mark.parametrize(
    "lost",
    [
        ("journal",),
        ("checkpoints",),
        ("journal", "checkpoints", "metrics.jsonl", "numerics.json"),
    ],
)
def test_a_directory_takes_from_its_mirror_what_it_has_lost(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """Equal to such a directory, the mirror would be empty, too."""
    place, run_dir = str(tmp_path / "mirror"), tmp_path / "run"
    Controller(run_dir, place).run(8)
    for name in lost:
        (run_dir / name).rename(tmp_path / name)
    again = Controller(run_dir, place)
    assert (again.term, again.begins) == (2, 8)
    take_over(place, tmp_path / "other")
    assert_alike(tmp_path / "other", run_dir)


def test_a_checkpoint_whose_mirroring_was_cut_off_is_mirrored_by_the_next_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, put = str(tmp_path / "mirror"), DirectoryObjects.put

    def cut_off(objects: DirectoryObjects, name: str, content: bytes) -> None:
        if name.startswith(f"{CHECKPOINTS}/") and objects.names(f"{CHECKPOINTS}/"):
            raise StorageFailed("the volume is gone")
        put(objects, name, content)

    with monkeypatch.context() as failing:
        failing.setattr(DirectoryObjects, "put", cut_off)
        first = Controller(tmp_path / "run", place)
        with pytest.raises(StorageFailed):
            first.run(3)
    assert Controller(tmp_path / "run", place).begins == 3
    take_over(place, tmp_path / "other")
    assert committed(tmp_path / "other") == 3


def test_a_segment_that_was_cut_is_replaced_by_its_mirrored_copy(tmp_path: Path) -> None:
    place, run_dir = str(tmp_path / "mirror"), tmp_path / "run"
    Controller(run_dir, place).run(8)
    (segment,) = (run_dir / "journal").iterdir()
    os.truncate(segment, segment.stat().st_size // 2)
    assert Controller(run_dir, place).begins == 8


def test_condemned_iterations_do_not_come_back(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    first = Controller(tmp_path / "run", place)
    first.run(8)
    first.mirror.store(first.journal.condemn(6, "a unit was wrong"))
    take_over(place, tmp_path / "other")
    assert len(read(tmp_path / "other" / "journal", first=6)) == 0
    assert committed(tmp_path / "other") == 6


def test_the_mirror_of_a_run_of_another_release_is_not_taken_over(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(8)
    DirectoryObjects(tmp_path / "mirror").put("terms/000001", b'{"run": "a"}')  # as 0.3 claimed
    with pytest.raises(VersionMismatch, match=r"mirror is a run of fullrank 0\.3 .*; install"):
        take_over(place, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("iterations", [2, 6])
def test_the_mirror_of_another_run_is_refused(tmp_path: Path, iterations: int) -> None:
    """Also after a checkpoint that outlived the whole journal."""
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(iterations)
    with pytest.raises(RunDirectoryInUse, match="mirrors another run, a; choose"):
        mirrored.Claims(DirectoryObjects(tmp_path / "mirror"), place).claim("b", last=0)
