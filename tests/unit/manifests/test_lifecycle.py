"""What drains, repairs and other runs rest on: rules that no schema knows."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kustomize import DEPLOY, Manifest, manifests, parse, render
from tests.workloads import objects_of, workloads_of

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
