"""Run directories: new ones are unique, existing ones are found by path or name."""

import os
from pathlib import Path

import pytest

from fullrank.cli.runs import default_run_dir, find_run
from fullrank.common.errors import FullrankError
from fullrank.config import RunConfig


def test_a_new_run_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    made = [default_run_dir(RunConfig(), root=root) for _ in range(3)]
    stem = "cooperative_navigation-maddpg-cyclic-seed0"
    assert made == [root / f"{stem}-{counter}" for counter in (1, 2, 3)]
    assert all(path.is_dir() for path in made)


def test_a_run_is_found_by_path_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_run(Path("first")) == Path("runs/first")
    assert find_run(tmp_path / "runs" / "first") == tmp_path / "runs" / "first"


def test_a_run_that_is_not_there_gets_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    with pytest.raises(FullrankError, match=r"there is no run 'frist'; did you mean 'first'\?"):
        find_run(Path("frist"), root=tmp_path)
    with pytest.raises(FullrankError, match="there are no runs in"):
        find_run(Path("frist"), root=tmp_path / "nothing")


@pytest.mark.parametrize("target", ["/dev/zero", "../../elsewhere", "/nowhere/at/all"])
@pytest.mark.parametrize("place", ["metrics.jsonl", "episode.gif", "checkpoints/000001"])
def test_a_link_that_leads_outside_a_run_is_refused_by_name(
    tmp_path: Path, target: str, place: str
) -> None:
    link = tmp_path / "run" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with pytest.raises(FullrankError, match=f"{link} is a link that leads outside the run"):
        find_run(tmp_path / "run")
    link.unlink()
    assert find_run(tmp_path / "run") == tmp_path / "run"


def test_links_within_a_run_and_links_to_a_run_are_followed(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "newest").symlink_to("checkpoints")
    (tmp_path / "mine").symlink_to("run")
    assert find_run(tmp_path / "mine") == tmp_path / "mine"


def test_what_is_no_file_or_claims_more_than_the_memory_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.safetensors")
    with pytest.raises(FullrankError, match="is neither a file nor a directory"):
        find_run(tmp_path)
    (tmp_path / "state.safetensors").unlink()
    for name in ("metrics.jsonl", "transitions.table"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**43)
    with pytest.raises(FullrankError, match=r"metrics.jsonl claims \d+ bytes, more than the mem"):
        find_run(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    assert find_run(tmp_path) == tmp_path
