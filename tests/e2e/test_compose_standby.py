"""A standby controller in containers: ``deploy/standby.env`` survives the controller's loss."""

from pathlib import Path

import docker
import pytest
from docker.models.containers import Container
from tests.e2e.commands import centralised
from tests.e2e.images import checkout, contents
from tests.e2e.stack import RUN, TINY, Stack, up

from fullrank.runs.record import IterationRecord, read_records

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.docker,
    pytest.mark.usefixtures("images"),
]


def _records(container: Container, run_dir: Path) -> list[IterationRecord]:
    """Copy what a container committed, and its configuration, into a directory."""
    run_dir.mkdir(exist_ok=True)
    for name in ("metrics.jsonl", "config.toml"):
        (run_dir / name).write_bytes(contents(container, f"{RUN}/{name}"))
    return read_records(run_dir / "metrics.jsonl")


def test_a_standby_goes_on_with_the_run_of_a_killed_controller_with_the_same_bytes(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure(TINY)
    stack = Stack(
        checkout=place,
        engine=docker_engine,
        options=("--env-file", str(place.deploy / "standby.env")),
    )
    with up(stack):
        stack.commit(5)
        lost, standby = stack.container("controller"), stack.container("standby")
        published = _records(lost, tmp_path / "lost")
        lost.kill()
        before = stack.starts()
        stack.eventually(
            lambda: any(each.term > 1 for each in _records(standby, tmp_path / "run")),
            what="the standby goes on",
        )
        assert stack.starts() == before  # learners and replay found it by themselves
        records = read_records(tmp_path / "run/metrics.jsonl")
        digests = [record.update_digest for record in records]
        assert digests[: len(published)] == [record.update_digest for record in published]
        assert digests == centralised(tmp_path / "run", iterations=len(digests))
        assert all(record.exact for record in records)
        assert records[0].term == 1
        status = stack.compose("run", "--rm", "admin", "status", "controller:50053")
        assert f"term {records[-1].term}: running" in " ".join(status.split())
