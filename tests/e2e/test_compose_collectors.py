"""Collectors in containers, ``deploy/awl.env`` and ``cmarl.env``: a lost one costs no iteration."""

from pathlib import Path

import docker
import pytest
from tests.e2e.images import checkout
from tests.e2e.lost_containers import indices_of, smaller, updates_of_heads, verified
from tests.e2e.stack import Stack, up

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.docker,
    pytest.mark.usefixtures("images"),
]


def test_awl_trains_as_it_is_shipped_and_a_killed_collector_costs_no_committed_iteration(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    stack = Stack(
        checkout=place,
        engine=docker_engine,
        options=("--env-file", str(place.deploy / "awl.env")),
    )
    with up(stack):
        stack.commit(3)
        collectors = stack.containers("collector")
        assert len(collectors) == 4
        log = stack.log("controller")
        assert log.count("collector_joined") >= 1
        before = stack.starts()
        victim = collectors[0]
        victim.kill()
        stack.commit(3)
        joined = stack.log("controller").count("collector_joined")
        victim.start()
        stack.eventually(
            lambda: stack.log("controller").count("collector_joined") > joined,
            what="the collector joins again",
        )
        records = stack.commit(2)
        assert [record.iteration for record in records] == list(range(len(records)))
        assert {record.term for record in records} == {records[0].term}
        assert all(record.exact for record in records)
        after = stack.starts()
        assert {name for name in before if after[name] != before[name]} == {victim.name}
        status = stack.compose("run", "--rm", "admin", "run", "status", "controller:50053")
        assert "blocks" in status  # of each collector


@pytest.mark.thorough  # as in test_kubernetes_collectors.py
def test_a_lost_container_that_learns_has_its_head_again_and_the_run_is_recomputed(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    run = place.deploy / "config/cmarl/run.toml"
    run.write_text(smaller(run.read_text()))
    stack = Stack(
        checkout=place,
        engine=docker_engine,
        options=("--env-file", str(place.deploy / "cmarl.env")),
    )
    with up(stack):
        controller = stack.container("controller")
        stack.eventually(lambda: len(updates_of_heads(controller)) == 3, what="heads of all")
        victim = stack.containers("collector")[0]
        *_, number = indices_of(str(victim.id)[:12], controller)
        victim.remove(force=True)
        stack.commit(2)
        before = updates_of_heads(controller)[number]
        stack.compose("up", "--detach", "--no-recreate", "--no-deps", "collector")
        stack.eventually(lambda: updates_of_heads(controller)[number] > before, what="a newer head")
        records = stack.commit(2)
        assert [record.iteration for record in records] == list(range(len(records)))
        assert {record.term for record in records} == {records[0].term}
        said = verified(docker_engine, controller=controller, replay=stack.container("replay"))
        assert "committed iterations recomputed, 0 to" in said
