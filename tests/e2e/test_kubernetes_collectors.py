"""The rendered ``awl`` overlay trains, and a killed collector costs no committed iteration."""

from pathlib import Path

import docker
import pytest
from tests.e2e.pods import needs_runner, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker, needs_runner]


def test_a_killed_collector_costs_no_iteration_and_disturbs_no_other_pod(
    images: str, docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    with running("awl", tag=images, engine=docker_engine, scratch=tmp_path) as pods:
        pods.commit(2)
        before = pods.starts()
        collectors = sorted(
            name for name in before if "_collector-" in name and name.endswith("_fullrank")
        )
        assert len(collectors) == 4
        host = collectors[0].removeprefix(f"{pods.project}_").removesuffix("_fullrank")
        victim = pods.container(host)
        victim.kill()
        pods.commit(2)
        victim.start()
        wait_until(lambda: pods.joins(host) == 2, what="the collector joins again")
        pods.commit(2)
        records = pods.records()
        assert [record.iteration for record in records] == list(range(len(records)))
        assert all(record.exact for record in records)
        assert {record.term for record in records} == {1}
        after = pods.starts()
        assert {name for name in before if after[name] != before[name]} == {victim.name}
