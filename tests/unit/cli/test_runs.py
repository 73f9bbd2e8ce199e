"""Run directories: new ones are unique, existing ones are found by path or name."""

from dataclasses import replace
from pathlib import Path

import pytest

from fullrank.cli.runs import default_run_dir, find_run
from fullrank.common.errors import FullrankError
from fullrank.config import EnvironmentSettings, RunConfig


def test_a_new_run_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    made = [default_run_dir(RunConfig(), root=root) for _ in range(3)]
    stem = "cooperative_navigation-maddpg-cyclic-seed0"
    assert made == [root / f"{stem}-{counter}" for counter in (1, 2, 3)]
    assert all(path.is_dir() for path in made)


def test_a_factory_makes_one_plain_directory_name(tmp_path: Path) -> None:
    environment = EnvironmentSettings(name="some.module:make/../it")
    made = default_run_dir(replace(RunConfig(), environment=environment), root=tmp_path)
    assert made.parent == tmp_path
    assert made.name == "some.module_make_.._it-maddpg-cyclic-seed0-1"


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
