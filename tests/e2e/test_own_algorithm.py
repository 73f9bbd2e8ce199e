"""An algorithm from an installed package: coded, exact and resumable through services."""

import shutil
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
from tests.e2e.commands import digests, final_state, fullrank, records, settings
from tests.registries import shipped

from fullrank.codes import codes
from fullrank.common.failpoints import VARIABLE
from fullrank.config import load
from fullrank.local import LocalRun

EXAMPLE = Path(__file__).parents[2] / "examples" / "matd3"
LINES = 120
"""Most lines of a user's algorithm."""
SUMS = ("fractional",)
"""Codes that recover sums of units."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's package as an installer leaves it: its module and its entry points."""
    directory = tmp_path_factory.mktemp("installed")
    shutil.copy(EXAMPLE / "matd3.py", directory)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    facts = directory / "fullrank_matd3-0.1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    return directory


def matd3(*overrides: str) -> Sequence[str]:
    return settings("algorithm.name=matd3", "learners=5", *overrides)


def test_an_algorithm_of_one_s_own_is_one_short_file() -> None:
    assert len((EXAMPLE / "matd3.py").read_text().splitlines()) <= LINES


@pytest.fixture(scope="module")
def trained(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run by services with a straggler."""
    path = tmp_path_factory.mktemp("trained") / "run"
    words = ("--stragglers", "1", "--delay", "0.05", *matd3("iterations=6"))
    environ = {"PYTHONPATH": str(installed)}
    outcome = fullrank("train", "--run-dir", str(path), *words, env=environ)
    assert (outcome.code, outcome.error) == (0, "")
    return path


@pytest.mark.e2e
def test_services_train_it_with_stragglers_to_the_bits_and_statistics_of_the_centralised_run(
    installed: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    import_module("matd3")
    overrides = [word for word in matd3("iterations=6") if word != "--set"]
    config = load(environ={}, overrides=overrides).check().config
    expected = LocalRun(config, coded=False).train()
    assert digests(trained) == [each.update_digest for each in expected]
    names = {f"{name}/{agent}" for name in ("value", "expected") for agent in range(3)}
    assert all(set(each.statistics) == names for each in expected)
    assert [each.statistics for each in records(trained)] == [each.statistics for each in expected]


@pytest.mark.e2e
def test_a_resumed_run_of_it_ends_with_the_bytes_of_the_uninterrupted_one(
    installed: Path, trained: Path, tmp_path: Path
) -> None:
    environ = {"PYTHONPATH": str(installed)}
    killed, words = tmp_path / "killed", matd3("iterations=6")
    failpoint = environ | {VARIABLE: "iteration.published:3"}
    assert fullrank("train", "--run-dir", str(killed), *words, env=failpoint).code != 0
    resumed = fullrank("resume", str(killed), env=environ)
    assert resumed.code == 0, resumed.error
    assert digests(killed) == digests(trained)
    assert final_state(killed) == final_state(trained)


@pytest.mark.parametrize("code", [code for code in shipped(codes) if code not in SUMS])
def test_every_code_commits_the_bits_of_the_centralised_run(
    code: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    import_module("matd3")
    words = [word for word in matd3("iterations=2", "learners=6") if word != "--set"]
    coded = load(environ={}, overrides=[*words, f"code.name={code}"]).check().config
    plain = load(environ={}, overrides=words).check().config
    decoded = [each.update_digest for each in LocalRun(coded).train()]
    assert decoded == [each.update_digest for each in LocalRun(plain, coded=False).train()]
