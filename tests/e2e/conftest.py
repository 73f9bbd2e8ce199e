"""Fixtures: run directories that are always cleaned of processes, and images, built once."""

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.e2e.commands import kill_all
from tests.e2e.images import checkout, engine


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """Path of a run directory."""
    path = tmp_path / "run"
    yield path
    kill_all(path)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerClient]:
    """Client of the Docker engine."""
    client = engine()
    yield client
    client.close()


@pytest.fixture(scope="session")
def images(docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tag of the six images, built from this checkout."""
    checkout(tmp_path_factory.mktemp("images")).build(tag="dev")
    return "dev"
