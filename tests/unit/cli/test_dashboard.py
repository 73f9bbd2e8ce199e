"""``fullrank dashboard`` finds the named runs, and reports a missing package."""

import sys
from pathlib import Path

import pytest

from fullrank.cli import main
from fullrank.common.errors import ConfigError
from fullrank.config.tree import DashboardSettings
from fullrank.host.process import Launch, find_service


def test_runs_are_directories_or_addresses_and_one_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches: list[Launch] = []

    def keep(launch: Launch) -> int:
        launches.append(launch)
        return 0

    monkeypatch.setattr("fullrank.cli.serve.find_service", {"dashboard": keep}.__getitem__)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/mine").mkdir(parents=True)
    with pytest.raises(SystemExit, match="0"):
        main(["dashboard", "mine", "127.0.0.1:1", "later", "--port", "0"])
    assert launches[0].config.dashboard == DashboardSettings(
        address="127.0.0.1:0", runs=("runs/mine", "127.0.0.1:1", "later")
    )


def test_a_folder_stands_for_the_runs_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches: list[Launch] = []

    def keep(launch: Launch) -> int:
        launches.append(launch)
        return 0

    monkeypatch.setattr("fullrank.cli.serve.find_service", {"dashboard": keep}.__getitem__)
    monkeypatch.chdir(tmp_path)
    for name in ("two", "one", "no_run"):
        (tmp_path / "study" / name).mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "study" / name / "config.toml").touch()
    with pytest.raises(SystemExit, match="0"):
        main(["dashboard", "study"])
    assert launches[0].config.dashboard.runs == ("study/one", "study/two")


def test_a_service_whose_packages_are_missing_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "fullrank_dashboard.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"'uvicorn': pip install 'fullrank\[dashboard\]'"):
        find_service("dashboard")
