"""A run on Kubernetes is an object."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.commands import Fakes, Replies
from tests.kustomize import OVERLAYS, parse, render
from tests.unit.cli.test_run_compose import AWAY, OVER, UNENDED, answered, container, docker

NAME, LABELS = (
    "team-a-controller",
    {
        "app.kubernetes.io/name": "fullrank",
        "app.kubernetes.io/instance": "team-a",
    },
)


def item(kind: str, name: str, spec: Any = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    labels = LABELS | {"app.kubernetes.io/component": name.rpartition("-")[2]}
    metadata = {"name": name, "labels": labels, "uid": "u1", **meta}
    return {"kind": kind, "metadata": metadata, "spec": spec or {}, "status": status or {}}


def pod(now: Any, last: Any = None, *, ready: bool = False) -> dict[str, Any]:
    """A controller's pod whose container is in a state, as ``kubectl get --output json`` shows."""
    found = {"name": "fullrank", "state": now, "lastState": last or {}, "ready": ready}
    times = {"creationTimestamp": "2026-11-28T08:00:00Z"}
    return item("Pod", NAME, {}, {"phase": "Running", "containerStatuses": [found]}, **times)


def ended(code: int, hour: int = 8) -> dict[str, Any]:
    at = f"2026-11-28T{hour:02}:00:00Z"
    return {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": at}}


def jobset(condition: str = "", *, kind: str = "JobSet", suspend: bool = False) -> dict[str, Any]:
    held = [{"type": condition, "status": "True", "message": f"jobset {condition}"}]
    status = {"conditions": held if condition else []}
    return item(kind, "team-a-run", {"suspend": suspend}, status)


SETS = (item("StatefulSet", NAME, {"replicas": 1}), item("PersistentVolumeClaim", NAME))
RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-11-28T08:00:01Z"}}
READY = pod(RUNNING, ready=True)
UNSCHEDULED = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}],
}
T0 = {"creationTimestamp": "2026-11-28T08:00:00Z"}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
PULL = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
TIMEOUT = "--request-timeout=10s "
ASKED = f"{TIMEOUT}exec {NAME}"
READ = f"{ASKED} --container fullrank -- cat /var/lib/fullrank/run/run.json"
LOG = f"{TIMEOUT}logs"


def kubectl(*objects: dict[str, Any], jobsets: Any = None, **more: object) -> Replies:
    missing = {"fails": 'error: the server doesn\'t have a resource type "jobsets"'}
    wholes: dict[str, object] = {"JobSet": missing, "TrainJob": missing}
    for kind in wholes if jobsets is not None else ():
        wholes[kind] = {"items": [each for each in jobsets if each["kind"] == kind]}
    return {
        f"{TIMEOUT}get pods,": {"items": objects},
        f"{TIMEOUT}get jobsets": wholes["JobSet"],
        f"{TIMEOUT}get trainjobs": wholes["TrainJob"],
        **more,
    }


@pytest.mark.parametrize(
    ("objects", "jobsets", "replies", "state", "exit_code", "reason"),
    [
        (SETS, None, {}, "PENDING", None, "no pod yet"),
        ([item("Pod", NAME, {}, UNSCHEDULED, **T0)], None, {}, "PENDING", None, "0/3 nodes"),
        ([pod(PULL)], None, {}, "PENDING", None, "ErrImagePull: not found"),
        ([pod(RUNNING)], None, {ASKED: answered("RUNNING")}, "RUNNING", None, ""),
        ([pod(RUNNING)], None, {ASKED: answered("FINISHED", "", 0)}, "FINISHED", 0, ""),
        ([pod(RUNNING)], None, {ASKED: AWAY}, "PENDING", None, "its services start"),
        ([READY], None, {READ: UNENDED, ASKED: AWAY}, "STALLED", None, "does not answer"),
        ([READY], None, {READ: OVER, ASKED: AWAY}, "FINISHED", 0, "3 iterations"),
        ([pod(RUNNING, ended(9))], None, {ASKED: AWAY}, "PENDING", 9, "its services start"),
        ([pod(BACK_OFF, ended(3))], None, {LOG: "it raised"}, "FAILED", 3, "it raised"),
        ([pod(RUNNING, ended(3))], None, {ASKED: AWAY, LOG: "it raised"}, "FAILED", 3, "raised"),
        ([pod(BACK_OFF, ended(9))], None, {}, "PENDING", 9, "CrashLoopBackOff"),
        ([pod(ended(0), ended(9))], None, {}, "FINISHED", 0, ""),
        ([pod(ended(0))], [jobset("Completed")], {}, "FINISHED", 0, ""),
        ([pod(ended(3))], [jobset("Failed")], {LOG: "it raised"}, "FAILED", 3, "it raised"),
        ([], [jobset("Failed")], {}, "FAILED", 1, "jobset Failed"),
        ([], [jobset(suspend=True)], {}, "PENDING", None, "`fullrank run resume team-a`"),
        ([], [jobset("Complete", kind="TrainJob"), jobset()], {}, "FINISHED", 0, ""),
        ([], [jobset(kind="TrainJob", suspend=True), jobset()], {}, "PENDING", None, "suspended"),
        ([pod(RUNNING)], [jobset()], {ASKED: answered("STALLED", "x")}, "STALLED", None, "x"),
    ],
)
def test_an_instance_on_kubernetes_is_an_object(
    objects: list[Any],
    jobsets: list[Any] | None,
    replies: dict[str, Any],
    state: str,
    exit_code: int | None,
    reason: str,
    fakes: Fakes,
    fullrank: Any,
) -> None:
    fakes.set("kubectl", kubectl(*objects, jobsets=jobsets, **replies))
    outcome = fullrank("run", "status", "team-a", "--on", "kubernetes", "--json")
    assert outcome.code == 0, outcome.error
    facts = json.loads(outcome.output)
    assert (facts["state"], facts["exit_code"]) == (state, exit_code)
    assert reason in facts["reason"]


def attempt(component: str, end: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """A pod of a job that has ended, one of several attempts."""
    found = {"name": "fullrank", "state": end, "ready": False}
    made = item("Pod", component, {}, {"containerStatuses": [found]}, **T0)
    made["metadata"]["name"] = f"team-a-{component}-{number}"
    return made


@pytest.mark.parametrize(
    ("attempts", "code", "last"),
    [
        ([("controller", 9, 8), ("controller", 15, 9)], 15, "controller-1"),
        ([("controller", 15, 9), ("controller", 9, 8)], 15, "controller-0"),
        ([("controller", 9, 9), ("controller", 3, 8)], 3, "controller-1"),
        ([("controller", 9, 8), ("controller", 9, 9)], 9, "controller-1"),
        ([("learner", 9, 8), ("learner", 7, 9), ("learner", 9, 10)], 7, "learner-1"),
        ([("learner", 3, 9), ("controller", 9, 8)], 9, "controller-1"),
        ([("controller", 0, 9), ("learner", 9, 8)], 9, "learner-1"),
    ],
)
def test_a_failed_run_has_code_and_reason_of_the_attempt_that_ended_it(
    attempts: list[tuple[str, int, int]], code: int, last: str, fakes: Fakes, fullrank: Any
) -> None:
    pods = [attempt(each, ended(*end), number) for number, (each, *end) in enumerate(attempts)]
    log = f"{LOG} --tail=1 -c fullrank team-a-{last}"
    fakes.set("kubectl", kubectl(*pods, jobsets=[jobset("Failed")], **{log: "it raised"}))
    outcome = fullrank("run", "status", "team-a", "--on", "kubernetes", "--json")
    assert outcome.code == 0, outcome.error
    facts = json.loads(outcome.output)
    assert (facts["state"], facts["exit_code"], facts["reason"]) == ("FAILED", code, "it raised")


def patches(calls: list[str]) -> dict[str, Any]:
    """What was patched, by the object."""
    words = [shlex.split(line, posix=False) for line in calls if " patch " in line]
    return {
        each[3]: json.loads(line.partition("--patch ")[2])
        for each, line in zip(words, [line for line in calls if " patch " in line], strict=True)
    }


def test_sets_are_scaled_to_nothing_and_back_and_jobs_suspended(
    fakes: Fakes, fullrank: Any
) -> None:
    learners = item("StatefulSet", "team-a-learner", {"replicas": 4})
    job = item("Job", "team-a-other", {})
    owned = item("Job", "team-a-run-controller-0", {}, ownerReferences=[{"kind": "JobSet"}])
    patch = {f"{TIMEOUT}patch": ""}
    fakes.set("kubectl", kubectl(*SETS, learners, job, owned, **patch))
    assert "goes on" in fullrank("run", "stop", "team-a", "--on", "kubernetes").output
    stopped = patches(fakes.calls())
    assert stopped == {
        f"statefulset/{NAME}": replicas("1", 0),
        "statefulset/team-a-learner": replicas("4", 0),
        "job/team-a-other": {"spec": {"suspend": True}},
    }
    for each, kept in ((SETS[0], "1"), (learners, "4")):
        each["metadata"]["annotations"] = {"fullrank/replicas": kept}
        each["spec"]["replicas"] = 0
    job["spec"]["suspend"] = True
    fakes.set("kubectl", kubectl(*SETS, learners, job, owned, **patch))
    shown = fullrank("run", "status", "team-a", "--on", "kubernetes").output
    assert shown.startswith("team-a on kubernetes: PENDING: stopped")
    assert "`fullrank run resume team-a` goes on" in shown
    assert f"results: claim {NAME}" in shown
    again = fullrank("run", "stop", "team-a", "--on", "kubernetes")
    assert again.code == 1
    fakes.set("kubectl", kubectl(*SETS, learners, job, owned, **patch))
    assert fullrank("run", "resume", "team-a", "--on", "kubernetes").code == 0
    del SETS[0]["metadata"]["annotations"]
    SETS[0]["spec"]["replicas"] = 1
    assert patches(fakes.calls()) == {
        f"statefulset/{NAME}": replicas(None, 1),
        "statefulset/team-a-learner": replicas(None, 4),
        "job/team-a-other": {"spec": {"suspend": False}},
    }


def replicas(note: str | None, number: int) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {"fullrank/replicas": note}},
        "spec": {"replicas": number},
    }


def test_what_has_ended_is_neither_stopped_nor_resumed(fakes: Fakes, fullrank: Any) -> None:
    """Sets of a finished run are not scaled either: their pods alone tell its end."""
    ends: dict[str, Sequence[list[Any]]] = {
        "nothing to stop": ([jobset("Completed")], [*SETS, pod(ended(0))])
    }
    ends["nothing of team-a is at work"] = ([jobset("Failed")],)
    for said, runs in ends.items():
        for objects in runs:
            wholes = [each for each in objects if each["kind"] == "JobSet"]
            fakes.set("kubectl", kubectl(*objects, jobsets=wholes, **{LOG: "it raised"}))
            for verb, words in (("stop", said), ("resume", "nothing of team-a is stopped")):
                outcome = fullrank("run", verb, "team-a", "--on", "kubernetes")
                assert (outcome.code, outcome.error.count("\n")) == (1, 1)
                assert words in outcome.error


def test_sets_of_a_run_that_fails_for_good_are_stopped_so_that_they_hold_no_machines(
    fakes: Fakes, fullrank: Any
) -> None:
    failing = pod(BACK_OFF, ended(3))
    replies = {LOG: "it raised", f"{TIMEOUT}patch": ""}
    fakes.set("kubectl", kubectl(*SETS, failing, **replies))
    assert fullrank("run", "stop", "team-a", "--on", "kubernetes").code == 0
    assert patches(fakes.calls()) == {f"statefulset/{NAME}": replicas("1", 0)}


def test_a_wrong_replica_count_in_an_annotation_is_an_error(fakes: Fakes, fullrank: Any) -> None:
    edited = item("StatefulSet", NAME, {"replicas": 0}, annotations={"fullrank/replicas": "x"})
    fakes.set("kubectl", kubectl(edited))
    outcome = fullrank("run", "resume", "team-a", "--on", "kubernetes")
    assert (outcome.code, outcome.error.count("\n")) == (9, 1)


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_what_kueue_queues_is_stopped_by_kueue(kind: str, fakes: Fakes, fullrank: Any) -> None:
    queued = jobset(kind=kind)
    queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "fullrank"
    get = f"{TIMEOUT}get workloads --selector kueue.x-k8s.io/job-uid=u1"
    load: dict[str, Any] = {"metadata": {"name": "jobset-team-a"}, "spec": {}}
    found: dict[str, Any] = {get: {"items": [load]}, f"{TIMEOUT}patch": ""}
    fakes.set("kubectl", kubectl(jobsets=[queued], **found))
    assert fullrank("run", "stop", "team-a", "--on", "kubernetes").code == 0
    assert patches(fakes.calls()) == {"workload/jobset-team-a": {"spec": {"active": False}}}
    load["spec"]["active"] = False
    fakes.set("kubectl", kubectl(jobsets=[queued], **found))
    assert fullrank("run", "stop", "team-a", "--on", "kubernetes").code == 1


@pytest.mark.parametrize("overlay", ["job", "jobset"])
def test_an_overlay_is_created_under_the_name_of_the_run(
    overlay: str, fakes: Fakes, fullrank: Any, tmp_path: Path
) -> None:
    rendered = render(OVERLAYS / overlay)
    (tmp_path / "run.toml").write_text("iterations = 3\n")
    kept = {"kustomize": rendered, f"{TIMEOUT}create": {"keeps": str(tmp_path / "made")}}
    fakes.set("kubectl", kubectl(**kept))
    words = ("run", "submit", "team-a", "--on", str(OVERLAYS / overlay))
    outcome = fullrank(*words, "--config", str(tmp_path / "run.toml"))
    assert outcome.code == 0, outcome.error
    made = yaml.safe_load((tmp_path / "made" / "kustomization.yaml").read_text())
    assert made["namePrefix"] == "team-a-"
    made["resources"] = [os.path.relpath(OVERLAYS / overlay, tmp_path / "made")]
    (tmp_path / "made" / "kustomization.yaml").write_text(json.dumps(made))
    objects = parse(render(tmp_path / "made"))
    assert all(each["metadata"]["name"].startswith("team-a-") for each in objects)
    instances = {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in objects}
    assert instances == {"team-a"}
    (configuration,) = (each for each in objects if each["kind"] == "ConfigMap")
    assert configuration["data"] == {"run.toml": "iterations = 3\n"}
    fakes.set("kubectl", kubectl(*SETS))
    assert fullrank(*words).code == 5


def test_runs_of_all_places_are_listed(fakes: Fakes, fullrank: Any, begun: Path) -> None:
    fakes.set("docker", docker(container("paused")))
    fakes.set("kubectl", kubectl(*SETS))
    listed = json.loads(fullrank("run", "list", "--json").output)
    assert [(each["name"], each["on"]) for each in listed] == [
        ("one", "host"),
        ("team-a", "compose"),
        ("team-a", "kubernetes"),
    ]
