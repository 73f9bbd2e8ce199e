"""Wheel and source distribution install and train where no compiler is, far from the checkout."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from tests.e2e.commands import records, settings

from fullrank import __version__

pytestmark = [pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = [path for path in sys.path if path.endswith("site-packages")]
PYTHON = "Programming Language :: Python :: "
VERSIONS = [
    each.removeprefix(PYTHON) for each in PROJECT["classifiers"] if each.startswith(f"{PYTHON}3.")
]
WHEEL = f"fullrank-{__version__}-py3-none-any.whl"
BENCH = """
directory = "bench"
algorithms = ["vdn", "iql"]
tasks = ["two_step_game"]
seeds = [0]
services = true
[common]
iterations = 2
collect.warmup = 16
environment.copies = 2
algorithm.batch_size = 4
metrics.sinks = []
"""


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


def _try(home: Path, folder: Path) -> None:
    """Train both ways, plot, evaluate and compare in an empty folder."""
    [packages] = (home / "lib").glob("python*/site-packages")
    imported = _run(
        home / "bin" / "python", "-c", "import fullrank; print(fullrank.__file__)", within=folder
    )
    assert Path(imported.strip()).is_relative_to(packages)

    def fullrank(*words: str) -> str:
        return _run(home / "bin" / "fullrank", *words, path=home / "bin", within=folder)

    for run, driver in (("one", ["--local"]), ("many", [])):
        fullrank("train", *settings("iterations=3"), "--run-dir", run, *driver)
        assert len(records(folder / run)) == 3
    fullrank("plot", "many")
    assert (folder / "many" / "plot.png").stat().st_size
    assert "trained" in fullrank("eval", "one", "--episodes", "2")
    (folder / "bench.toml").write_text(BENCH)
    assert "probability of improvement" in fullrank("bench", "bench.toml")


@pytest.mark.parametrize(
    "name",
    [WHEEL, pytest.param(f"fullrank-{__version__}.tar.gz", marks=pytest.mark.thorough)],
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
    _run(sys.executable, "-m", "pip", "--python", python, *words, built / name, path=home / "bin")
    _try(home, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_installs_from_an_index_and_trains(
    built: Path, tmp_path: Path, version: str
) -> None:
    """Every version of Python that the metadata name, where it is on this machine.

    The environment is empty; torch with CUDA takes 5 GB of it, without the machine's own index.
    """
    python = _python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    home = tmp_path / "environment"
    _run(python, "-m", "venv", home)
    pip = (home / "bin" / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
    _run(*pip, built / WHEEL, within=tmp_path)
    _try(home, tmp_path)


def _python(version: str) -> Path | None:
    """An interpreter among those of pyenv, whose shims may start none, or on the path."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/{version}.*/bin/python"))
    found = shutil.which(f"python{version}")
    return kept[0] if kept else Path(found) if found else None
