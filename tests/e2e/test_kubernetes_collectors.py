"""The rendered overlays ``awl`` and ``cmarl`` train, and a killed collector costs no iteration."""

from pathlib import Path

import docker
import pytest
from tests.e2e.images import checkout
from tests.e2e.lost_containers import indices_of, smaller, updates_of_heads, verified
from tests.e2e.pods import Pods, needs_runner, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker, needs_runner]


def collectors(pods: Pods) -> list[str]:
    """Hosts of the collectors."""
    names = (name.removeprefix(f"{pods.project}_") for name in pods.starts())
    found = (name.removesuffix("_fullrank") for name in names if name.endswith("_fullrank"))
    return sorted(host for host in found if host.startswith("collector-"))


@pytest.mark.thorough  # tests/integration/test_containers.py shows most of it
def test_a_killed_container_that_learns_has_its_head_again_and_the_run_is_recomputed(
    images: str, docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    run = place.deploy / "config/cmarl/run.toml"
    run.write_text(smaller(run.read_text()))
    with running(
        "cmarl", tag=images, engine=docker_engine, scratch=tmp_path, deploy=place.deploy
    ) as pods:
        controller = pods.container("controller-0")
        wait_until(lambda: len(updates_of_heads(controller)) == 3, what="heads of all")
        host = collectors(pods)[0]
        *_, number = indices_of(host, controller)
        victim = pods.container(host)
        victim.kill()
        pods.commit(2)
        before = updates_of_heads(controller)[number]
        victim.start()
        wait_until(lambda: updates_of_heads(controller)[number] > before, what="a newer head")
        pods.commit(2)
        records = pods.records()
        assert [record.iteration for record in records] == list(range(len(records)))
        assert {record.term for record in records} == {1}
        said = verified(docker_engine, controller=controller, replay=pods.container("replay-0"))
        assert "committed iterations recomputed, 0 to" in said
