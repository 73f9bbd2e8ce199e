"""A directory and its mirror complete each other."""

import os
from pathlib import Path
from typing import cast

import pytest
from tests.unit.runs.mirrored import ITERATIONS, Controller, assert_alike, committed
from tests.unit.runs.test_recovery import flip

from fullrank.common.errors import NotFound, RunDirectoryInUse, StorageFailed, VersionMismatch
from fullrank.runs import mirrored
from fullrank.runs.checkpoint import saved
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.journal import read, supersede
from fullrank.runs.mirror import Mirror, take_over
from fullrank.runs.objects import DirectoryObjects


class Unmirrored:
    """A mirror that a dying controller reaches no more."""

    def store(self, record: object) -> None:
        """Do nothing."""

    def checkpoint(self, path: object) -> None:
        """Do nothing."""


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


def test_a_segment_that_a_checkpoint_outlived_stays_removed(tmp_path: Path) -> None:
    """A controller that dies between both removals leaves it in the mirror."""
    place, run_dir = str(tmp_path / "mirror"), tmp_path / "run"
    first = Controller(run_dir, place)
    first.run(2)
    first.mirror = cast(Mirror, Unmirrored())
    first.begins = 2
    first.run(3)
    again = Controller(run_dir, place)
    assert again.begins == 3
    assert [path.name for path in (run_dir / "journal").iterdir()] == ["000003-000001.journal"]


def test_withdrawn_iterations_do_not_come_back(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    first = Controller(tmp_path / "run", place)
    first.run(8)
    supersede(tmp_path / "run" / "journal", term=2, first=6)
    first.mirror.equalise()
    take_over(place, tmp_path / "other")
    assert len(read(tmp_path / "other" / "journal", first=6)) == 0
    assert committed(tmp_path / "other") == 6


def test_a_directory_that_has_withdrawn_iterations_goes_on(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    first = Controller(tmp_path / "run", place)
    first.run(8)
    supersede(tmp_path / "run" / "journal", term=2, first=6)
    first.mirror.equalise()
    second = Controller(tmp_path / "run", place)
    assert (second.term, second.begins) == (3, 6)
    second.run()
    assert committed(tmp_path / "run") == ITERATIONS


def test_a_directory_is_mirrored_from_where_it_is(tmp_path: Path) -> None:
    """A mirror that is new, or lost, is filled at the next start."""
    Controller(tmp_path / "run", str(tmp_path / "lost")).run(8)
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place)
    take_over(place, tmp_path / "other")
    assert committed(tmp_path / "other") == 8
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert (tmp_path / "other" / "metrics.jsonl").read_bytes() == metrics


def test_the_mirror_of_a_run_of_another_release_is_not_taken_over(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(8)
    DirectoryObjects(tmp_path / "mirror").put("terms/000001", b'{"run": "a"}')  # as 0.3 claimed
    with pytest.raises(VersionMismatch, match=r"mirror is a run of fullrank 0\.3 .*; install"):
        take_over(place, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_mirror_holds_no_more_than_the_directory(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run()
    names = DirectoryObjects(tmp_path / "mirror").names()
    newest = saved(tmp_path / "run" / "checkpoints")[0].name
    assert names == [
        f"checkpoints/{newest}-000001/manifest.json",
        f"checkpoints/{newest}-000001/state.safetensors",
        "files/000001/config.toml",
        "files/000001/numerics.json",
        "journal/000009-000001/begun",
        *[name for name in names if name.startswith("metrics/000001/")],
        "terms/000001",
    ]


@pytest.mark.parametrize("iterations", [2, 6])
def test_the_mirror_of_another_run_is_refused(tmp_path: Path, iterations: int) -> None:
    """Also after a checkpoint that outlived the whole journal."""
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(iterations)
    with pytest.raises(RunDirectoryInUse, match="mirrors another run, a; choose"):
        mirrored.Claims(DirectoryObjects(tmp_path / "mirror"), place).claim("b", last=0)


def test_an_empty_mirror_is_nothing_to_take_over(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no committed iteration yet"):
        take_over(str(tmp_path / "mirror"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
