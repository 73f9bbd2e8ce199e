"""Objects of every overlay, and the names by which they find one another."""

import kubernetes_validate
import pytest
from tests.kustomize import DEPLOY, manifests
from tests.workloads import (
    config_of,
    configuration,
    objects_of,
    resolved_of,
    selects,
    workloads_of,
)

from fullrank.wiring import code_of

RELEASES = ("1.33", "1.35", "1.37")
"""Releases of Kubernetes; native sidecars are stable from the first on."""
CLUSTER_WIDE = ("Namespace", "StorageClass")
BUDGET = "PodDisruptionBudget"


@pytest.mark.parametrize(
    "release",
    [RELEASES[0], *(pytest.param(each, marks=pytest.mark.thorough) for each in RELEASES[1:])],
)
def test_every_object_is_what_the_release_s_schema_says(overlay: str, release: str) -> None:
    for manifest in manifests(overlay):
        kubernetes_validate.validate(manifest, release, strict=True)


def test_everything_lies_in_one_namespace_that_enforces_the_restricted_standard(
    overlay: str,
) -> None:
    (namespace,) = objects_of(overlay, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    namespaced = [each for each in manifests(overlay) if each["kind"] not in CLUSTER_WIDE]
    assert {each["metadata"]["namespace"] for each in namespaced} == {"fullrank"}


def test_services_find_their_pods_on_ports_these_declare(overlay: str) -> None:
    for service in objects_of(overlay, "Service"):
        workload = workloads_of(overlay)[service["metadata"]["name"]]
        assert service["spec"]["clusterIP"] == "None"
        assert selects({"matchLabels": service["spec"]["selector"]}, workload.labels)
        declared = {port["containerPort"] for port in workload.ports}
        assert {port["port"] for port in service["spec"]["ports"]} <= declared
        assert workload.name in (
            workload.spec.get("serviceName"),
            workload.pod.get("subdomain"),
        )


def test_whichever_controller_serves_is_found_under_one_name() -> None:
    """Clients try each address of a headless service, and a standby listens at none."""
    service = {each["metadata"]["name"]: each for each in objects_of("standby", "Service")}
    selector = {"matchLabels": service["controller"]["spec"]["selector"]}
    workloads = workloads_of("standby")
    found = {name for name in workloads if selects(selector, workloads[name].labels)}
    assert found == {"controller", "standby"}
    assert service["controller"]["spec"]["publishNotReadyAddresses"]


def test_the_standby_shares_the_mirror_with_the_controller_and_neither_machine_nor_run() -> None:
    first, second = (workloads_of("standby")[name] for name in ("controller", "standby"))
    assert first.volumes["mirror"] == second.volumes["mirror"]
    assert first.volumes["run"] != second.volumes["run"]
    configs = [config_of(each.pod["containers"][0], "standby") for each in (first, second)]
    assert configs[0] == configs[1]
    for each in (first, second):
        mounts = {mount["mountPath"]: mount["name"] for mount in each.containers[0]["volumeMounts"]}
        assert mounts[configs[0].checkpoint.mirror] == "mirror"
    (claim,) = (
        each["spec"]
        for each in objects_of("standby", "PersistentVolumeClaim")
        if each["metadata"]["name"] == "mirror"
    )
    assert claim["accessModes"] == ["ReadWriteMany"]
    anti = second.pod["affinity"]["podAntiAffinity"]
    (rule,) = anti["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert selects(rule["labelSelector"], first.labels)


def test_selectors_hit_the_pods_of_their_workload_alone(overlay: str) -> None:
    workloads = workloads_of(overlay)
    budgets = {each["metadata"]["name"]: each["spec"] for each in objects_of(overlay, BUDGET)}
    assert set(budgets) == set(workloads)
    for name in workloads:
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
    replicas = learner.spec.get("replicas") or learner.spec["completions"]
    assert replicas == learner.spec.get("parallelism", replicas) == config.learners
    if learner.kind == "StatefulSet":
        assert budget["maxUnavailable"] <= tolerance
    else:  # the budget of a Job can only count what must stay
        assert "maxUnavailable" not in budget
        assert replicas - budget["minAvailable"] <= tolerance


def test_the_configuration_is_the_very_files_that_compose_mounts(overlay: str) -> None:
    (mounted,) = objects_of(overlay, "ConfigMap")
    files = sorted((DEPLOY / "config").glob("*.toml"))
    assert mounted["data"] == {
        file.name: configuration(overlay, file.name).read_text(encoding="utf-8") for file in files
    }
    for workload in workloads_of(overlay).values():
        assert workload.volumes["configuration"]["configMap"]["name"] == mounted["metadata"]["name"]
