"""The rendered ``local`` overlay runs: pods of real containers, without a cluster.

FULLRANK_KUBE_RUNNER names a program that reads manifests from standard input and runs them on a
Docker engine: ``up --project NAME`` returns when every startup and readiness probe has passed, and
``down --project NAME`` removes everything. A container is called ``NAME_POD_CONTAINER``.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
import yaml
from docker.models.containers import Container
from tests.e2e.commands import fullrank
from tests.e2e.images import CLIENT, contents
from tests.kustomize import DEPLOY, OVERLAYS, parse, render
from tests.waiting import wait_until

from fullrank.config import load
from fullrank.runs.record import IterationRecord, read_records
from fullrank.wiring import delays_of

RUNNER = os.environ.get("FULLRANK_KUBE_RUNNER", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.docker,
    pytest.mark.skipif(
        not RUNNER, reason="needs a cluster: FULLRANK_KUBE_RUNNER names no runner of manifests"
    ),
]

METRICS = "/var/lib/fullrank/run/metrics.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The containers of a running overlay."""

    project: str
    engine: docker.DockerClient
    scratch: Path

    def container(self, pod: str) -> Container:
        """Main container of the pod."""
        return self.engine.containers.get(f"{self.project}_{pod}_fullrank")

    def starts(self) -> dict[str, str]:
        """Last start time of each container."""
        found = self.engine.containers.list(filters={"name": f"^{self.project}_"})
        return {str(each.name): each.attrs["State"]["StartedAt"] for each in found}

    def records(self) -> list[IterationRecord]:
        """Records of the committed iterations."""
        copy = self.scratch / "metrics.jsonl"
        copy.write_bytes(contents(self.container("controller-0"), METRICS))
        return read_records(copy)

    def commit(self, count: int) -> None:
        """Wait for the given number of further committed iterations."""
        target = len(self.records()) + count
        wait_until(lambda: len(self.records()) >= target, what=f"{target} iterations committed")

    def joins(self, host: str) -> int:
        """Number of times that a learner of this pod has joined the run."""
        lines = self.container("controller-0").logs().decode().splitlines()
        return sum("learner_joined" in line and line.endswith(f"host={host}") for line in lines)


@pytest.fixture(scope="module")
def pods(
    images: str, docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pods]:
    """The local overlay, running."""
    project = f"fullrank-{uuid.uuid4().hex[:8]}"
    manifests = render(OVERLAYS / "local")
    assert f":{images}\n" in manifests
    certificates = tmp_path_factory.mktemp("certificates")
    for words in (("init",), ("secrets",)):
        outcome = fullrank("certs", *words, str(certificates))
        assert (outcome.code, outcome.error) == (0, "")
    try:
        _run("up", project, _zoned(manifests) + outcome.output)
        yield Pods(project=project, engine=docker_engine, scratch=tmp_path_factory.mktemp("pods"))
    finally:
        _run("down", project, "")


def _zoned(manifests: str) -> str:
    """The manifests with the label that a cluster copies from a pod's node."""
    objects = parse(manifests)
    for each in objects:
        if each["kind"] == "StatefulSet":
            each["spec"]["template"]["metadata"]["labels"]["topology.kubernetes.io/zone"] = "here"
    return yaml.safe_dump_all(objects)


def _run(verb: str, project: str, manifests: str) -> None:
    command = [sys.executable, RUNNER, verb, "--project", project, "--docker", CLIENT]
    run = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_killed_learner_costs_no_iteration_and_disturbs_no_other_pod(pods: Pods) -> None:
    before = pods.starts()
    pods.commit(5)
    victim = pods.container("learner-2")
    victim.kill()
    pods.commit(5)
    victim.start()
    wait_until(lambda: pods.joins("learner-2") == 2, what="the learner joins again")
    pods.commit(5)
    records = pods.records()
    assert [record.iteration for record in records] == list(range(len(records)))
    assert all(record.exact for record in records)
    after = pods.starts()
    assert {name for name in before if after[name] != before[name]} == {victim.name}


def test_each_sidecar_delays_the_learner_that_the_model_names(pods: Pods) -> None:
    pods.commit(20)
    run = load(DEPLOY / "config/run.toml", environ={}).check().config
    lab = load(DEPLOY / "config/straggler.toml", environ={}).check().config
    for record in pods.records():
        delays = delays_of(lab).delays(
            seed=run.seed, iteration=record.iteration, learners=run.learners
        )
        assert delays.max() > 0
        assert record.round_s >= max(delays[learner] for learner in record.received)
