"""Collectors in containers: ``deploy/awl.env`` trains, and a killed one costs no iteration."""

from pathlib import Path

import docker
import pytest
from tests.e2e.images import checkout
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
        status = stack.compose("run", "--rm", "admin", "status", "controller:50053")
        assert "settled" in status  # by replay, of each collector's episodes
