"""The images: small, with an unprivileged user, and one line of error when something is missing."""

import json

import docker
import pytest
from tests.e2e.images import BASE_IMAGE

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.docker,
    pytest.mark.usefixtures("images"),
]

MB = 1_000_000


@pytest.mark.parametrize("service", ["replay", "straggler", "dashboard"])
def test_a_service_that_computes_nothing_holds_no_torch(
    images: str, docker_engine: docker.DockerClient, service: str
) -> None:
    output = docker_engine.containers.run(
        f"fullrank-{service}:{images}",
        ["-c", "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('numpy'))"],
        entrypoint="python",
        remove=True,
        read_only=True,
    )
    assert output.startswith(b"None ModuleSpec")


def _size(engine: docker.DockerClient, image: str) -> int:
    return int(engine.images.get(image).attrs["Size"])


@pytest.mark.parametrize("service", ["replay", "straggler", "dashboard"])
def test_an_image_without_torch_adds_150_mb_at_most(
    images: str, docker_engine: docker.DockerClient, service: str
) -> None:
    base = _size(docker_engine, BASE_IMAGE or "python:3.11-slim-bookworm")
    assert _size(docker_engine, f"fullrank-{service}:{images}") - base < 150 * MB


@pytest.mark.parametrize(
    "service", ["controller", "collector", "learner", "replay", "straggler", "dashboard"]
)
def test_an_image_runs_as_nobody_in_particular_and_says_what_is_missing(
    images: str, docker_engine: docker.DockerClient, service: str
) -> None:
    image = f"fullrank-{service}:{images}"
    assert docker_engine.images.get(image).attrs["Config"]["User"] == "10001:10001"
    with pytest.raises(docker.errors.ContainerError) as raised:
        docker_engine.containers.run(image, remove=True, read_only=True)
    assert raised.value.exit_status == 2
    assert isinstance(raised.value.stderr, bytes)
    starting, line = raised.value.stderr.decode().splitlines()
    assert f"fullrank {service} " in starting
    assert json.loads(line)["message"].startswith("fullrank: cannot read /etc/fullrank/")
