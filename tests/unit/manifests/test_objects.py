"""Objects of every overlay, the names by which they find one another, and their life."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from tests.kustomize import DEPLOY, Manifest, manifests, parse, render
from tests.workloads import (
    config_of,
    configuration,
    objects_of,
    resolved_of,
    selects,
    workloads_of,
)

from fullrank.config.code import code_of

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


def test_a_controller_with_a_store_has_no_claim_and_its_directory_is_empty_at_its_start() -> None:
    controller = workloads_of("store")["controller"]
    (container,) = controller.containers
    assert config_of(container, "store").store.url == "s3://bucket/fullrank"
    assert controller.volumes["run"] == {"name": "run", "emptyDir": {"sizeLimit": "10Gi"}}
    claims = {each["metadata"]["name"] for each in objects_of("store", "PersistentVolumeClaim")}
    assert claims == {"replay"}
    assert container["envFrom"] == [{"secretRef": {"name": "store", "optional": True}}]


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


INSTANCE = "app.kubernetes.io/instance"
SELECTORS = ("selector", "podSelector", "labelSelector")


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


def selectors_of(part: Any) -> Iterator[dict[str, str]]:
    """The labels of every selector in a manifest; an empty one selects a namespace's pods."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in SELECTORS and value:
                yield value.get("matchLabels", value)
            else:
                yield from selectors_of(value)
    elif isinstance(part, list):
        for each in part:
            yield from selectors_of(each)


def names_of(objects: list[Manifest]) -> set[str | None]:
    """The runs that objects, their pods and their selectors name."""
    found = {name.get(INSTANCE) for each in objects for name in selectors_of(each["spec"])}
    for each in objects:
        template = each["spec"].get("template", each)
        found |= {
            labels.get(INSTANCE)
            for labels in (each["metadata"]["labels"], template["metadata"]["labels"])
        }
    return found


def test_every_object_and_every_selector_names_the_run(overlay: str) -> None:
    selecting = [
        each for each in manifests(overlay) if each["kind"] not in ("ConfigMap", "Namespace")
    ]
    assert names_of([each for each in selecting if "spec" in each]) == {"fullrank"}


def test_an_overlay_of_one_s_own_names_another_run_in_all_of_them(tmp_path: Path) -> None:
    deploy = Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))
    mine = deploy / "k8s/overlays/mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(
        "resources: [../local]\n"
        f"labels: [{{pairs: {{{INSTANCE}: second}}, includeSelectors: true}}]\n"
    )
    named = [each for each in parse(render(mine)) if "spec" in each and each["kind"] != "Namespace"]
    assert names_of(named) == {"second"}
