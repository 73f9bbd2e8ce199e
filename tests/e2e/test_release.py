"""Wheel and source distribution install and train where no compiler is, far from the checkout."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.e2e.commands import records, settings

from fullrank import __version__

pytestmark = [pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = [path for path in sys.path if path.endswith("site-packages")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def _run(*words: str | Path, **named: str | Path) -> str:
    path = os.environ["PATH"]
    environment = {**os.environ, "CC": "false", "CXX": "false", "PYTHONPATH": ""}
    environment["PATH"] = str(named.get("path", path))
    done = subprocess.run(
        list(map(str, words)),
        env=environment,
        cwd=named.get("within"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "fullrank-{}-py3-none-any.whl",
        pytest.param("fullrank-{}.tar.gz", marks=pytest.mark.thorough),
    ],
)
def test_a_distribution_trains_in_an_environment_of_its_own(
    built: Path, tmp_path: Path, name: str
) -> None:
    """The environment has the dependencies and nothing of the checkout."""
    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    [packages] = (home / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(DEPENDENCIES) + "\n")
    words = ["install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    python = home / "bin" / "python"
    file = built / name.format(__version__)
    _run(sys.executable, "-m", "pip", "--python", python, *words, file, path=home / "bin")
    imported = _run(python, "-c", "import fullrank; print(fullrank.__file__)", within=tmp_path)
    assert Path(imported.strip()).is_relative_to(packages)
    for run, driver in (("one", ["--local"]), ("many", [])):
        options = [*settings("iterations=3"), "--run-dir", str(tmp_path / run), *driver]
        _run(home / "bin" / "fullrank", "train", *options, path=home / "bin", within=tmp_path)
        assert len(records(tmp_path / run)) == 3
