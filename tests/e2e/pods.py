"""A rendered overlay that runs: pods of real containers, without a cluster.

FULLRANK_KUBE_RUNNER names a program that reads manifests from standard input and runs them on a
Docker engine: ``up --project NAME`` returns when every startup and readiness probe has passed, and
``down --project NAME`` removes everything. A container is called ``NAME_POD_CONTAINER``.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
import yaml
from docker.models.containers import Container
from tests.e2e.commands import fullrank
from tests.e2e.images import CLIENT, contents
from tests.kustomize import DEPLOY, Manifest, parse, render
from tests.waiting import wait_until
from tests.workloads import environ_of, workloads_in

from fullrank.runs.record import IterationRecord, read_records

RUNNER = os.environ.get("FULLRANK_KUBE_RUNNER", "")
needs_runner = pytest.mark.skipif(
    not RUNNER, reason="needs a cluster: FULLRANK_KUBE_RUNNER names no runner of manifests"
)

RUN = "/var/lib/fullrank/run"


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

    def records(self, pod: str = "controller-0") -> list[IterationRecord]:
        """Records of the committed iterations, in the controller of a pod."""
        copy = self.scratch / "metrics.jsonl"
        copy.write_bytes(contents(self.container(pod), f"{RUN}/metrics.jsonl"))
        return read_records(copy)

    def commit(self, count: int, pod: str = "controller-0") -> None:
        """Wait for the given number of further committed iterations of a pod's controller."""
        target = len(self.records(pod)) + count
        wait_until(lambda: len(self.records(pod)) >= target, what=f"{target} iterations committed")

    def joins(self, host: str, pod: str = "controller-0") -> int:
        """Number of times that the learner or collector of this host has joined a pod's run."""
        lines = self.container(pod).logs().decode().splitlines()
        return sum("_joined" in line and f'host={host}"' in line for line in lines)


@contextmanager
def running(
    *overlays: str,
    tag: str,
    engine: docker.DockerClient,
    scratch: Path,
    deploy: Path = DEPLOY,
) -> Iterator[Pods]:
    """Run overlays in one namespace; at the end remove them.

    Args:
        overlays: Their names. Of several, each is that of its run.
        tag: Tag of the images.
        engine: Docker engine that runs them.
        scratch: An empty directory.
        deploy: The folder of the manifests, or a copy with another configuration.
    """
    project, everything = f"fullrank-{uuid.uuid4().hex[:8]}", ""
    for overlay in overlays:
        manifests, certificates = render(deploy / "k8s/overlays" / overlay), scratch / overlay
        assert f":{tag}\n" in manifests
        name = ("--run", overlay) if len(overlays) > 1 else ()
        for words in (("init", *name), ("secrets",)):
            outcome = fullrank("certs", *words, str(certificates))
            assert (outcome.code, outcome.error) == (0, "")
        objects = yaml.safe_dump_all(_scheduled(parse(manifests)), explicit_start=True)
        everything += objects + outcome.output
    try:
        _run("up", project, everything)
        yield Pods(project=project, engine=engine, scratch=scratch)
    finally:
        _run("down", project, "")


def _scheduled(objects: list[Manifest]) -> list[Manifest]:
    """The manifests as a node sees them: with its zone, and the values of variables in others.

    Startup probes wait for twenty minutes: the machine may do all else besides.
    """
    for workload in workloads_in(objects).values():
        template = workload.spec["template"]
        template["metadata"]["labels"]["topology.kubernetes.io/zone"] = "here"
        for container in workload.containers:
            if "startupProbe" in container:
                container["startupProbe"]["failureThreshold"] = 600
            for each in container.get("env", []):
                if "value" in each:
                    each["value"] = environ_of(container)[each["name"]]
    return objects


def _run(verb: str, project: str, manifests: str) -> None:
    command = [sys.executable, RUNNER, verb, "--project", project, "--docker", CLIENT]
    run = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
