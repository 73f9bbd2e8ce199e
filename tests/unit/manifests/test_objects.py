"""Objects of every overlay, the names by which they find one another, and their life."""

import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
from kubernetes_validate import utils
from tests.kustomize import DEPLOY, Manifest, manifests, parse, render
from tests.workloads import (
    JOBSETS,
    command_of,
    config_of,
    configuration,
    jobs_in,
    objects_of,
    resolved_of,
    selects,
    workloads_in,
    workloads_of,
)

from fullrank.config.code import code_of

RELEASES = ("1.33", "1.35", "1.37")
"""Releases of Kubernetes; native sidecars are stable from the first on."""
CUSTOM = ("JobSet", "TrainingRuntime", "TrainJob", "Issuer", "Certificate", "PodMonitor")
"""Kinds that a cluster has from elsewhere, whose schemas are not at hand."""
BUDGET = "PodDisruptionBudget"

utils.schema_contents = cache(utils.schema_contents)  # megabytes, which it reads for each object


@pytest.mark.parametrize(
    "release",
    [RELEASES[0], *(pytest.param(each, marks=pytest.mark.thorough) for each in RELEASES[1:])],
)
def test_every_object_is_what_the_release_s_schema_says(overlay: str, release: str) -> None:
    validate(manifests(overlay), release)


def validate(objects: list[Manifest], release: str) -> None:
    for each in objects:
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, release, strict=True)
    for job in (job for each in objects for job in jobs_in(each)):  # which are plain Jobs
        plain = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
        kubernetes_validate.validate(plain | job["template"], release, strict=True)


NAMESPACED = {
    *("ConfigMap", "Service", "ServiceAccount", "PersistentVolumeClaim", "PodDisruptionBudget"),
    *("NetworkPolicy", "StatefulSet", "Deployment", "Job", *CUSTOM),
}


def test_a_namespace_s_administrator_may_apply_and_delete_a_run_in_any_namespace(
    overlay: str,
) -> None:
    assert {each["kind"] for each in manifests(overlay)} <= NAMESPACED
    assert not any("namespace" in each["metadata"] for each in manifests(overlay))


@pytest.mark.parametrize("name", ["common", "eks"])
def test_what_belongs_to_a_cluster_is_what_its_schema_says_and_no_run_s(name: str) -> None:
    objects = parse(render(DEPLOY / "k8s/cluster" / name))
    validate(objects, RELEASES[0])
    assert not {each["kind"] for each in objects} & NAMESPACED
    (namespace,) = (each for each in objects if each["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    classes = {each["metadata"]["name"] for each in objects if each["kind"] == "PriorityClass"}
    named = {each.pod.get("priorityClassName") for each in workloads_of("eks").values()}
    assert named == classes


def test_services_find_their_pods_on_ports_these_declare(overlay: str) -> None:
    for service in objects_of(overlay, "Service"):
        workload = workloads_of(overlay)[service["metadata"]["name"]]
        assert service["spec"]["clusterIP"] == "None"
        assert selects({"matchLabels": service["spec"]["selector"]}, workload.labels)
        declared = {port["containerPort"] for port in workload.ports}
        assert {port["port"] for port in service["spec"]["ports"]} <= declared
        governing = (workload.spec.get("serviceName"), workload.pod.get("subdomain"))
        assert workload.name in governing or overlay in JOBSETS


def test_a_controller_with_a_store_has_no_claim_and_its_directory_is_empty_at_its_start() -> None:
    controller = workloads_of("store")["controller"]
    (container,) = controller.containers
    assert config_of(container, "store").store.url == "s3://bucket/$(RUN)"
    assert controller.volumes["run"] == {"name": "run", "emptyDir": {"sizeLimit": "10Gi"}}
    claims = {each["metadata"]["name"] for each in objects_of("store", "PersistentVolumeClaim")}
    assert claims == {"replay"}
    assert container["envFrom"] == [{"secretRef": {"name": "store", "optional": True}}]


def test_selectors_hit_the_pods_of_their_workload_alone(overlay: str) -> None:
    workloads = workloads_of(overlay)
    budgets = {each["metadata"]["name"]: each["spec"] for each in objects_of(overlay, BUDGET)}
    ending = {name for name, each in workloads.items() if each.kind == "Job"}
    assert set(workloads) - ending <= set(budgets) <= set(workloads)
    for name in budgets:
        selector = budgets[name]["selector"]
        assert [each for each in workloads if selects(selector, workloads[each].labels)] == [name]
        if workloads[name].kind != "Job":
            assert workloads[name].spec["selector"] == selector


def test_no_more_learners_are_disrupted_at_a_time_than_the_code_tolerates(overlay: str) -> None:
    learner = workloads_of(overlay)["learner"]
    (budget,) = (
        b["spec"] for b in objects_of(overlay, BUDGET) if b["metadata"]["name"] == "learner"
    )
    resolved = resolved_of(learner.pod["containers"][0], overlay).size()
    config, (units, target) = resolved.config, resolved.units()
    tolerance = code_of(config, units=units, target=target).tolerance
    replicas = learner.spec.get("replicas", learner.spec.get("completions"))
    assert replicas in (None, config.learners)
    assert replicas == learner.spec.get("parallelism", replicas)
    if learner.kind == "StatefulSet":
        assert budget["maxUnavailable"] <= tolerance
    else:  # the budget of a Job can only count what must stay
        assert "maxUnavailable" not in budget
        assert replicas - budget["minAvailable"] <= tolerance


def test_the_configuration_is_the_very_files_that_compose_mounts(overlay: str) -> None:
    mounted = {
        each["metadata"]["name"]: dict(each["data"].items())
        for each in objects_of(overlay, "ConfigMap")
    }
    used = set()
    for name, workload in workloads_of(overlay).items():
        for volume, file in (("configuration", "run.toml"), ("lab", "straggler.toml")):
            if volume in workload.volumes:
                used.add(workload.volumes[volume]["configMap"]["name"])
                text = configuration(overlay, file).read_text(encoding="utf-8")
                assert mounted[workload.volumes[volume]["configMap"]["name"]] == {file: text}
        assert ("configuration" in workload.volumes) == (name != "replay")
    assert used == set(mounted)


def test_a_changed_setting_restarts_the_pods_that_read_it_and_no_other(tmp_path: Path) -> None:
    before = workloads_of("local")
    deploy = Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))
    for file, restarted in (
        ("lab/straggler.toml", {"learner"}),
        ("run.toml", {"controller", "learner"}),
    ):
        text = (deploy / "config" / file).read_text()
        (deploy / "config" / file).write_text(text + "# changed\n")
        after = workloads_in(parse(render(deploy / "k8s/overlays/local")))
        assert {name for name in before if after[name].spec != before[name].spec} == restarted
        (deploy / "config" / file).write_text(text)


@pytest.mark.parametrize("name", ["job", "jobset"])
def test_a_job_that_has_ended_goes_so_that_the_next_apply_starts_learners(name: str) -> None:
    ending = list(objects_of(name, "Job", "JobSet"))
    assert ending
    assert all(each["spec"]["ttlSecondsAfterFinished"] > 0 for each in ending)


def test_a_jobset_has_the_pods_of_the_sets_which_end_with_the_run() -> None:
    ending, standing = workloads_of("jobset"), workloads_of("eks")
    cloud = {"nodeSelector", "tolerations", "terminationGracePeriodSeconds", "priorityClassName"}
    assert set(ending) == set(standing)
    for name, workload in ending.items():
        (own,), (other,) = workload.pod["containers"], standing[name].pod["containers"]
        assert own["args"] == [*command_of(other), "--until-finished"]
        assert {**own, "args": None, "image": None} == {**other, "args": None, "image": None}
        shared = set(standing[name].pod) - cloud - {"containers"}
        pods = workload.pod, standing[name].pod
        assert workload.pod["restartPolicy"] == "Never"
        assert {key: pods[0][key] for key in shared} == {key: pods[1][key] for key in shared}
        assert workload.labels == standing[name].labels
    (jobset,) = objects_of("jobset", "JobSet")
    assert jobset["spec"]["successPolicy"]["targetReplicatedJobs"] == ["controller"]


def test_a_runtime_is_a_template_of_the_jobset_in_the_form_that_trainer_admits() -> None:
    """As its webhook has it: the step of a TrainJob is one job with a container called node."""
    (jobset,), (runtime,) = (
        objects_of("jobset", "JobSet"),
        objects_of("kubeflow", "TrainingRuntime"),
    )
    (job,) = objects_of("kubeflow", "TrainJob")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    template = runtime["spec"]["template"]["spec"]
    *services, step = deepcopy(template["replicatedJobs"])
    labels = step["template"].pop("metadata")["labels"]
    assert labels == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert (step["replicas"], runtime["spec"]["mlPolicy"]["numNodes"]) == (1, 4)
    step["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "fullrank"
    (rule,) = (
        each
        for each in step["template"]["spec"]["podFailurePolicy"]["rules"]
        if "onExitCodes" in each
    )
    rule["onExitCodes"]["containerName"] = "fullrank"
    assert [*services, step] == jobset["spec"]["replicatedJobs"]
    # A deleted JobSet would be made again.
    assert jobset["spec"].keys() - template.keys() == {"ttlSecondsAfterFinished"}
    assert not any("priorityClassName" in each.pod for each in workloads_of("kubeflow").values())


def test_every_job_of_a_jobset_fails_for_good_with_the_exit_codes_of_its_own_container(
    overlay: str,
) -> None:
    for name, workload in workloads_of(overlay).items():
        for rule in workload.spec.get("podFailurePolicy", {}).get("rules", []):
            asked = rule.get("onExitCodes", {}).get("containerName")
            assert asked in (None, *(each["name"] for each in workload.containers)), name


def test_apply_leaves_the_number_of_learners_to_whoever_scales_them() -> None:
    assert "replicas" not in workloads_of("eks")["learner"].spec


def test_a_repaired_configuration_reaches_a_pod_that_never_became_ready(overlay: str) -> None:
    """With OrderedReady a StatefulSet waits for such a pod before it renews it."""
    sets = list(objects_of(overlay, "StatefulSet"))
    assert [each["spec"]["podManagementPolicy"] for each in sets] == ["Parallel"] * len(sets)


def test_every_drain_ends(overlay: str) -> None:
    workloads = workloads_of(overlay)
    for budget in objects_of(overlay, "PodDisruptionBudget"):
        spec, workload = budget["spec"], workloads[budget["metadata"]["name"]].spec
        assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        if "minAvailable" in spec:
            assert spec["minAvailable"] < workload["parallelism"]
        else:
            assert spec["maxUnavailable"] != 0
