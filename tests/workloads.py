"""The workloads of rendered manifests, read as a cluster would read them."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kustomize import DEPLOY, Manifest, manifests

from fullrank.config import Resolved, RunConfig, load

HEALTH, TRAINING, REPLAY, MONITOR = 50050, 50051, 50052, 50053
PROXY, CONTROL, PROXY_HEALTH = 50061, 50062, 50063
RUNTIME = "TrainingRuntime"
JOBSETS = ("jobset", "kubeflow")
"""Overlays whose run is a JobSet, or a template of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A StatefulSet, a Job, also one of a JobSet or of a runtime, or a Deployment."""

    kind: str
    name: str
    spec: Manifest

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.spec["template"]["metadata"]["labels"])

    @property
    def pod(self) -> Manifest:
        return dict(self.spec["template"]["spec"])

    @property
    def containers(self) -> list[Manifest]:
        return [*self.pod.get("initContainers", []), *self.pod["containers"]]

    @property
    def ports(self) -> list[Manifest]:
        return [port for container in self.containers for port in container["ports"]]

    @property
    def volumes(self) -> dict[str, Manifest]:
        return {volume["name"]: volume for volume in self.pod["volumes"]}


def objects_of(overlay: str, *kinds: str) -> Iterator[Manifest]:
    return (manifest for manifest in manifests(overlay) if manifest["kind"] in kinds)


def workloads_of(overlay: str) -> dict[str, Workload]:
    return workloads_in(manifests(overlay))


def workloads_in(objects: list[Manifest]) -> dict[str, Workload]:
    """The workloads by name, those of a JobSet or of a runtime by their names in it."""
    found = [
        (each["kind"], each["metadata"]["name"], each["spec"])
        for each in objects
        if each["kind"] in ("StatefulSet", "Job", "Deployment")
    ]
    for each in objects:
        found += [("Job", job["name"], job["template"]["spec"]) for job in jobs_in(each)]
    return {name: Workload(kind=kind, name=name, spec=spec) for kind, name, spec in found}


def jobs_in(manifest: Manifest) -> list[Manifest]:
    """The replicated jobs of a JobSet, or of a runtime, which is a template of one."""
    kind, spec = manifest["kind"], manifest.get("spec", {})
    jobset = spec if kind == "JobSet" else spec["template"]["spec"] if kind == RUNTIME else {}
    return list(jobset.get("replicatedJobs", []))


def containers_of(overlay: str) -> list[Manifest]:
    return [each for workload in workloads_of(overlay).values() for each in workload.containers]


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "this reader knows no other selector"
    return dict(selector.get("matchLabels", {})).items() <= labels.items()


def service_of(container: Manifest) -> str:
    """The service whose image a container runs."""
    name: str = container["image"].rpartition(":")[0].rpartition("/")[2]
    return name.removeprefix("fullrank-")


def command_of(container: Manifest) -> list[str]:
    """The command of a container, either its own or the image's."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    commands = dict(
        re.findall(r"^FROM \S+ AS (\w+)$(?:(?!^FROM ).)*?^CMD (\[.*?\])$", dockerfile, re.M | re.S)
    )
    command: list[str] = container.get("args") or json.loads(commands[service_of(container)])
    assert command[:2] == ["serve", service_of(container)]
    return command


def option_of(container: Manifest, option: str) -> str:
    """An option of a container's command."""
    command = command_of(container)
    return command[command.index(option) + 1]


def configuration(overlay: str, name: str) -> Path:
    """The file of the repository that an overlay mounts under a name."""
    config = DEPLOY / "config"
    return next(
        each
        for each in (config / overlay / name, config / name, config / "lab" / name)
        if each.exists()
    )


def config_of(container: Manifest, overlay: str) -> RunConfig:
    """The resolved settings of a container: its TOML file, if it reads one, and its variables."""
    return resolved_of(container, overlay).config


def resolved_of(container: Manifest, overlay: str) -> Resolved:
    """The same with the numbers that follow from them."""
    environ = environ_of(container)
    if "--config" not in command_of(container):
        return load(environ=environ).check()
    file = Path(option_of(container, "--config"))
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volume = "lab" if service_of(container) == "straggler" else "configuration"
    assert mounts[str(file.parent)]["name"] == volume
    return load(configuration(overlay, file.name), environ=environ).check()


def environ_of(container: Manifest) -> dict[str, str]:
    """The variables of a container; ``$(NAME)`` is the value of one that stands before.

    Those that a node fills are empty, and stay as they are in others.
    """
    environ: dict[str, str] = {}
    for each in container.get("env", []):
        value = each.get("value", "")
        for name, known in environ.items():
            value = value.replace(f"$({name})", known or f"$({name})")
        environ[each["name"]] = value
    return environ
