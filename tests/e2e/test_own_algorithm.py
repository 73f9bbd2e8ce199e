"""An algorithm from an installed package: coded, exact and resumable through services."""

import shutil
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
from tests.e2e.commands import digests, fullrank, records, settings

from fullrank.common.failpoints import VARIABLE
from fullrank.config import load
from fullrank.local import LocalRun

EXAMPLE = Path(__file__).parents[2] / "examples" / "matd3"
LINES = 120
"""Most lines of a user's algorithm."""


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


@pytest.mark.e2e
def test_killed_services_train_it_with_stragglers_to_the_bits_and_statistics_of_the_centralised_run(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--stragglers", "1", "--delay", "0.05", *matd3("iterations=6"))
    environ = {"PYTHONPATH": str(installed)}
    failpoint = environ | {VARIABLE: "iteration.published:3"}
    assert fullrank("train", "--run-dir", str(tmp_path), *words, env=failpoint).code != 0
    resumed = fullrank("run", "resume", "--attach", str(tmp_path), env=environ)
    assert (resumed.code, resumed.error) == (0, "")
    monkeypatch.syspath_prepend(str(installed))
    statistics = import_module("matd3").MATD3().statistics()
    overrides = [word for word in matd3("iterations=6") if word != "--set"]
    config = load(environ={}, overrides=overrides).check().config
    expected = LocalRun(config, coded=False).train()
    assert digests(tmp_path) == [each.update_digest for each in expected]
    names = {f"{name}/{agent}" for name in (*statistics, "grad_norm") for agent in range(3)}
    names |= {"env_steps", "learning_rate"}
    assert all(set(each.statistics) == names for each in expected)
    assert [each.statistics for each in records(tmp_path)] == [each.statistics for each in expected]
