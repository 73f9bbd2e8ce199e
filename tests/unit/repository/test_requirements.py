"""Requirements of the images: locks within the distribution's ranges, every version with a hash."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ROOT / "deploy/requirements"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, on locks that a test may change."""
    spec = importlib.util.spec_from_file_location("requirements", ROOT / "tools/requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for lock in LOCKS.glob("*.txt"):
        (tmp_path / lock.name).write_text(lock.read_text())
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return module


def _names(image: str) -> set[str]:
    lock = (LOCKS / f"{image}.txt").read_text()
    return set(re.findall(r"^[\w.-]+(?===)", lock, re.MULTILINE))


def test_the_locks_are_within_what_the_distribution_says() -> None:
    command = [sys.executable, str(ROOT / "tools/requirements.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_each_image_holds_what_the_one_before_it_holds() -> None:
    assert _names("services") < _names("learner") < _names("controller")
    assert {"starlette", "tenacity", "uvicorn"} <= _names("dashboard") - _names("services")
    assert _names("torch-cpu") == {"torch"}
    assert _names("torch-cuda") & _names("learner") == set()


@pytest.mark.parametrize(
    ("lock", "pattern", "instead", "fault"),
    [
        ("learner", r"^grpcio==\S+", "grpcio==1.2.0", "grpcio is 1.2.0 and "),
        ("controller", r"^scipy==\S+", "scipy==1.1.0", "scipy is 1.1.0, of "),
        ("services", r"^numpy==\S+ \\\n(?: .*\n)*", "", "services.txt lacks numpy"),
        (
            "torch-cpu",
            r" \\\n(?: .*\n)*",
            "\n",
            "torch-cpu.txt: torch has no exact version with a hash",
        ),
        ("build", r"^hatchling==", "hatchling>=", "build.txt: hatchling has no exact version"),
    ],
)
def test_a_lock_that_is_stale_or_lacks_a_hash_is_found(
    tool: ModuleType, lock: str, pattern: str, instead: str, fault: str
) -> None:
    assert list(tool.faults()) == []
    path = tool.FOLDER / f"{lock}.txt"
    changed, places = re.subn(pattern, instead, path.read_text(), flags=re.MULTILINE)
    assert places == 1
    path.write_text(changed)
    assert any(each.startswith(fault) for each in tool.faults())


def test_every_image_is_built_on_digests_and_hashes() -> None:
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    assert re.search(r"^ARG BASE_IMAGE=\S+@sha256:[0-9a-f]{64}$", dockerfile, re.MULTILINE)
    locked = re.findall(r"-r /requirements/", dockerfile)
    hashed = re.findall(r"install --require-hashes[^&]*?(?=\n\n| &&)", dockerfile)
    assert sum(each.count("-r /requirements/") for each in hashed) == len(locked) > 0
    compose = (ROOT / "deploy/docker-compose.yml").read_text()
    foreign = re.findall(r"image: \$\{\w+_IMAGE:-(\S+?)\}", compose)
    assert len(foreign) == 2
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in foreign)
