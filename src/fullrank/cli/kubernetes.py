"""Runs on Kubernetes: a run is the objects of its instance, a TrainJob, JobSet, or sets of pods.

What waits in a queue, is preempted, retried or removed, Kueue, JobSet and Job decide.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fullrank.cli.containers import (
    FINAL,
    GOES_ON,
    answer,
    call,
    last_line,
    silent,
    store_of,
    understood,
)
from fullrank.cli.objects import Condition, RunObject, State, by_exit, taken
from fullrank.common.errors import ConfigError, NotFound, ServiceLost
from fullrank.common.types import JSON

KINDS = "pods,statefulsets.apps,deployments.apps,jobs.batch,persistentvolumeclaims"
LAYERS = ("jobsets.jobset.x-k8s.io", "trainjobs.trainer.kubeflow.org")
"""Kinds of a whole run, which a cluster may lack; the second makes one of the first."""
PART = "app.kubernetes.io"
"""Prefix of the labels name, instance (the run) and component (the role)."""
WHOLE = ("TrainJob", "JobSet")
REPLICAS = "fullrank/replicas"
"""Annotation with the number of pods that a stopped run had."""
QUEUE, OWNER = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/job-uid"
KUBECTL = ("kubectl", "--request-timeout=10s")


class Kubernetes:
    """Instances in the current namespace of ``kubectl``.

    Args:
        overlay: Directory with the overlay of new runs; by default that with an end, in a checkout.
    """

    name = "kubernetes"

    def __init__(self, overlay: Path = Path("deploy/k8s/overlays/job")) -> None:
        self._overlay = overlay

    @understood("kubectl")
    def names(self) -> list[str]:
        """Instances.

        Raises:
            ServiceLost: No cluster answers.
        """
        return sorted({each["metadata"]["labels"][f"{PART}/instance"] for each in _objects()})

    @understood("kubectl")
    def knows(self, name: str) -> bool:
        """True if an instance has an object."""
        return bool(_objects(name))

    @understood("kubectl")
    def look(self, name: str) -> RunObject:
        """The run of an instance.

        Raises:
            ServiceLost: No cluster answers.
        """
        objects = _objects(name)
        claims = [each["metadata"]["name"] for each in _of("PersistentVolumeClaim", objects)]
        own = (f"claim {each}" for each in claims if each.endswith("controller"))
        results = store_of(objects) or next(own, "")
        return RunObject(name, self.name, *_condition_of(name, objects), results)

    def submit(self, name: str, config: Path | None) -> None:
        """Create the objects of a new instance, which is the overlay under another name.

        Raises:
            ConfigError: There is no overlay.
            RunDirectoryInUse: There is such an instance.
            ServiceLost: No cluster answers.
        """
        if not self._overlay.is_dir():
            raise ConfigError(f"there is no {self._overlay}; name the overlay by --on DIRECTORY")
        if self.knows(name):
            raise taken(name, self.name)
        rendered = call("kubectl", "kustomize", str(self._overlay))
        named = re.search(rf"^ *{PART}/instance: {re.escape(name)}$", rendered, re.MULTILINE)
        with TemporaryDirectory() as folder:
            place = Path(folder).resolve()
            facts: JSON = {"resources": [os.path.relpath(self._overlay.resolve(), place)]}
            if not named:
                labels = {"pairs": {f"{PART}/instance": name}, "includeSelectors": True}
                facts |= {"namePrefix": f"{name}-", "labels": [labels]}
            if config is not None:
                shutil.copyfile(config, place / "run.toml")
                merged = {"name": "configuration", "behavior": "merge", "files": ["run.toml"]}
                facts |= {"configMapGenerator": [merged]}
            (place / "kustomization.yaml").write_text(json.dumps(facts))
            call(*KUBECTL, "create", "--save-config", "--kustomize", folder, shown=True)

    def stop(self, name: str) -> str:
        """Suspend a run, or scale its sets to 0.

        Raises:
            NotFound: It has finished, or does not run.
        """
        if (run := self.look(name)).state is State.FINISHED:
            raise NotFound(f"{run}: nothing to stop; who deletes its objects, frees its machines")
        _patch_all(name, running=False)
        return f"told to stop, with a checkpoint; `fullrank run resume {name}` goes on"

    def resume(self, name: str) -> None:
        """Let a run go on that was suspended, or scale its sets to what they were."""
        _patch_all(name, running=True)

    @understood("kubectl")
    def logs(self, name: str, *, follow: bool) -> None:
        """Print the log of the controller."""
        if (pod := _controllers_pod(_objects(name))) is None:
            raise NotFound(f"{name} has no pod of a controller at the moment")
        words = ("logs", *["--follow"] * follow, "-c", "fullrank", pod["metadata"]["name"])
        call("kubectl", *words, shown=True)


def _objects(name: str = "") -> list[JSON]:
    """The objects of a run, or of all runs, in the current namespace."""
    selector = f"{PART}/name=fullrank,{PART}/instance{'=' * bool(name)}{name}"
    found: list[JSON] = []
    for kinds in (KINDS, *LAYERS):
        words = ("get", kinds, "--selector", selector, "--output", "json")
        try:
            found += json.loads(call(*KUBECTL, *words))["items"]
        except ServiceLost:
            if kinds == KINDS:  # the cluster; a layer may not be installed
                raise
    return found


@understood("kubectl")
def _patch_all(name: str, *, running: bool) -> None:
    """Let the workloads of a run go on, or have them stopped.

    Raises:
        NotFound: There is none to which that applies.
    """
    if not [each for each in _objects(name) if _patch(each, running=running)]:
        state = "stopped" if running else "at work"
        raise NotFound(f"nothing of {name} is {state}: `fullrank run status {name}` says why")


def _condition_of(name: str, objects: Sequence[JSON]) -> Condition:
    """The condition of a run, by its objects."""
    for whole in (each for kind in WHOLE for each in _of(kind, objects)):
        ends = {each["type"]: each for each in _conditions(whole)}
        if ends.keys() & {"Complete", "Completed"}:
            return by_exit(0)
        if "Failed" in ends:
            code, reason = _failure(objects)
            return by_exit(code or 1, reason or ends["Failed"].get("message", ""))
        if whole["spec"].get("suspend"):
            reason = f"suspended: stopped, or in its queue; `fullrank run resume {name}` goes on"
            return Condition(State.PENDING, reason)
    if (pod := _controllers_pod(objects)) is not None:
        return _condition_of_pod(pod)
    stopped = any(REPLICAS in each["metadata"].get("annotations", {}) for each in objects)
    reason = GOES_ON % name if stopped else "its controller has no pod yet"
    return Condition(State.PENDING, reason)


def _condition_of_pod(pod: JSON) -> Condition:
    """The condition of a run, by its controller's pod."""
    found = next(_fullrank(pod), None)
    if found is None:
        unmet = [each for each in pod["status"].get("conditions", []) if each["status"] == "False"]
        reason = unmet[0].get("message", "") if unmet else ""
        return Condition(State.PENDING, reason or "its pod starts")
    state, before = found["state"], found.get("lastState", {}).get("terminated")
    if "running" in state:
        place = ("exec", pod["metadata"]["name"], "--container", "fullrank", "--")
        try:
            return answer(*KUBECTL, *place)
        except ServiceLost as error:
            if found["ready"]:
                return silent(*KUBECTL, *place, why=str(error))
    before = state.get("terminated", before)
    last = None if before is None else int(before["exitCode"])
    if last in (0, *FINAL):
        return by_exit(*(_failure([pod]) if last else (0, "")))
    waiting = state.get("waiting", {})
    reason = ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    return Condition(State.PENDING, reason or "its services start", last)


def _failure(objects: Sequence[JSON]) -> tuple[int, str]:
    """Exit code and last line of the container that has failed.

    A controller's comes before others, a code that no restart cures before one that was retried,
    and the newest before earlier ones.
    """
    controllers = _controllers(objects)
    failed = [
        ((pod in controllers, code in FINAL, end.get("finishedAt") or ""), code, which, pod)
        for pod in _of("Pod", objects)
        for found in _fullrank(pod)
        for state, which in (("state", ()), ("lastState", ("--previous",)))
        if (end := found.get(state, {}).get("terminated")) and (code := int(end["exitCode"]))
    ]
    if not failed:
        return 0, ""
    _, code, which, pod = max(failed, key=lambda each: each[0])
    words = ("logs", "--tail=1", *which, "-c", "fullrank", pod["metadata"]["name"])
    return code, last_line(*KUBECTL, *words)


def _patch(found: JSON, *, running: bool) -> bool:
    """Let a workload run, or have it stopped; False if it does already, or has ended."""
    meta, kind, spec = found["metadata"], found["kind"], found["spec"]
    place = f"{kind.lower()}/{meta['name']}"
    patch: JSON = {"spec": {"suspend": not running}}
    if kind in WHOLE and QUEUE in meta.get("labels", {}):  # Kueue sets what is suspended
        words = ("get", "workloads", "--selector", f"{OWNER}={meta['uid']}", "--output", "json")
        queued = json.loads(call(*KUBECTL, *words))["items"]
        if not queued or queued[0]["spec"].get("active", True) == running:
            return False
        place, patch = f"workload/{queued[0]['metadata']['name']}", {"spec": {"active": running}}
    elif kind in ("StatefulSet", "Deployment"):
        kept = meta.get("annotations", {}).get(REPLICAS)
        if (kept is None) if running else not spec.get("replicas"):
            return False
        replicas = int(kept) if running else 0
        note = None if running else str(spec["replicas"])
        patch = {"metadata": {"annotations": {REPLICAS: note}}, "spec": {"replicas": replicas}}
    elif (
        kind not in (*WHOLE, "Job")
        or meta.get("ownerReferences")
        or _conditions(found)
        or spec.get("suspend", False) != running
    ):
        return False  # what belongs to another object, has ended, or is so already
    call(*KUBECTL, "patch", place, "--type=merge", "--patch", json.dumps(patch))
    return True


def _of(kind: str, objects: Sequence[JSON]) -> list[JSON]:
    return [each for each in objects if each["kind"] == kind]


def _conditions(found: JSON) -> list[JSON]:
    """Conditions that hold, of a Job or a JobSet, but for the suspended one."""
    held = found.get("status", {}).get("conditions", [])
    return [each for each in held if each["status"] == "True" and each["type"] != "Suspended"]


def _controllers(objects: Sequence[JSON]) -> list[JSON]:
    part, pods = f"{PART}/component", _of("Pod", objects)
    return [each for each in pods if each["metadata"]["labels"].get(part) == "controller"]


def _controllers_pod(objects: Sequence[JSON]) -> JSON | None:
    """The newest pod of a controller."""
    pods = _controllers(objects)
    return max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)


def _fullrank(pod: JSON) -> Iterator[JSON]:
    """The status of a pod's container ``fullrank``, once it has one."""
    found = pod["status"].get("containerStatuses", [])
    return (each for each in found if each["name"] == "fullrank")
