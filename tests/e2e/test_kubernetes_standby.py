"""The rendered ``standby`` overlay survives the loss of the controller's pod."""

from pathlib import Path

import docker
import pytest
from tests.e2e.commands import centralised
from tests.e2e.images import checkout, contents
from tests.e2e.pods import RUN, needs_runner, running
from tests.e2e.stack import TINY
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker, needs_runner]


def test_a_standby_pod_goes_on_with_the_run_of_a_lost_controller_with_the_same_bytes(
    images: str, docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure(TINY)
    with running(
        "standby",
        tag=images,
        engine=docker_engine,
        scratch=tmp_path,
        deploy=place.deploy,
        probed=False,
    ) as pods:
        pods.commit(5)
        published = pods.records()
        pods.remove("controller-0")
        before = pods.starts()
        wait_until(
            lambda: any(each.term > 1 for each in pods.records("standby-0")),
            what="the standby goes on",
        )
        assert pods.starts() == before  # learners and replay found it by themselves
        records = pods.records("standby-0")
        configuration = contents(pods.container("standby-0"), f"{RUN}/config.toml")
    (tmp_path / "config.toml").write_bytes(configuration)
    digests = [record.update_digest for record in records]
    assert digests[: len(published)] == [record.update_digest for record in published]
    assert digests == centralised(tmp_path, iterations=len(digests))
    assert all(record.exact for record in records)
    assert records[0].term == 1
