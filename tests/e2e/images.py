"""Build the services' images as users do, from a copy of their sources."""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container
from tests.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    *("pyproject.toml", "README.md", "LICENSE", ".dockerignore", "src", "services"),
    *("papers", "deploy"),
)
CLIENT = os.environ.get("FULLRANK_DOCKER", "docker")
BASE_IMAGE = os.environ.get("FULLRANK_BASE_IMAGE", "")
WHEELHOUSE = os.environ.get("FULLRANK_WHEELHOUSE", "")
REQUIRED = bool(os.environ.get("FULLRANK_REQUIRE_DOCKER"))
"""True if a missing engine fails the tests instead of skipping them."""


def engine() -> docker.DockerClient:
    """A client of the Docker engine; skips or fails the test if there is none."""
    try:
        client = docker.from_env(timeout=int(WAIT_S))
        client.ping()
    except docker.errors.DockerException as error:
        unable = pytest.fail if REQUIRED else pytest.skip
        unable(f"no Docker engine answers ({error})")
    return client


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A copy of the parts of the repository that are built and run, which tests may change."""

    path: Path

    @property
    def deploy(self) -> Path:
        """Its folder ``deploy``."""
        return self.path / "deploy"

    def configure(self, tables: str, *, iterations: int = 1_000_000) -> None:
        """Add tables to the run's configuration, by default for a run without end."""
        run = self.deploy / "config/run.toml"
        run.write_text(f"iterations = {iterations}\n{run.read_text()}{tables}")

    def build(self, *services: str, tag: str = "dev", extra: str = "") -> None:
        """``docker compose build``."""
        variables = {"FULLRANK_TAG": tag, "EXTRA_REQUIREMENTS": extra}
        if BASE_IMAGE:
            variables["BASE_IMAGE"] = BASE_IMAGE
        if WHEELHOUSE:
            variables["PIP_NO_INDEX"] = "1"
        words = ("-f", str(self.deploy / "docker-compose.yml"), "--profile", "*", "build")
        compose(*words, *services, variables=variables)


def checkout(path: Path) -> Checkout:
    """Copy the sources of the images, and the wheels if a wheelhouse is given."""
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "*.whl")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, path / part, ignore=ignored)
        else:
            shutil.copy(source, path / part)
    for wheel in Path(WHEELHOUSE).glob("*.whl") if WHEELHOUSE else ():
        shutil.copy(wheel, path / "deploy/wheelhouse")
    return Checkout(path=path)


def contents(container: Container, path: str) -> bytes:
    """A file within a container; empty if there is none (yet).

    Uses the command, because the SDK's ``exec_run`` mixes frame headers into long answers at times.
    """
    name = str(container.name)
    read = subprocess.run([CLIENT, "exec", name, "cat", path], capture_output=True, check=False)
    if read.returncode == 0:
        return read.stdout
    # It has ended, so that nothing writes the file while it is copied.
    copy = subprocess.run([CLIENT, "cp", f"{name}:{path}", "-"], capture_output=True, check=False)
    if copy.returncode != 0:
        return b""
    with tarfile.open(fileobj=io.BytesIO(copy.stdout)) as archive:
        file = archive.extractfile(archive.getmembers()[0])
        return file.read() if file else b""


def compose(*words: str, variables: Mapping[str, str]) -> str:
    """Run ``docker compose``; returns its standard output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FULLRANK_")}
    run = subprocess.run(
        [CLIENT, "compose", *words],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
