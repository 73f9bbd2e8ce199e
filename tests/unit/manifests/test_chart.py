"""The Helm chart is the manifests of kustomize with a release's name and values."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kustomize import DEPLOY, Manifest, parse, render
from tests.unit.manifests.test_names import labels_of, selectors_of
from tests.unit.manifests.test_objects import RELEASES, validate
from tests.workloads import selects, workloads_in

from fullrank import __version__

CHART, ROOT = DEPLOY / "chart", DEPLOY.parent
STORE = "store.url=s3://bucket"


def program(name: str) -> str:
    """Path of kubectl or helm, the pinned one if it is installed."""
    pinned = Path(sys.executable).with_name(name)
    found = str(pinned) if pinned.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}, which python tools/kubectl.py installs")
    return found


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("helm"), *words], capture_output=True, text=True, check=False)


@cache
def released(name: str, *values: str) -> list[Manifest]:
    """The objects of a release with ``--set`` values."""
    given = [word for value in values for word in ("--set", value)]
    run = helm("template", name, str(CHART), *given)
    assert run.returncode == 0, run.stderr
    return parse(run.stdout)


@cache
def overlaid(name: str, store: bool, scratch: Path) -> list[Manifest]:
    """The objects of an overlay of the same run, made as the guide says."""
    deploy = Path(shutil.copytree(DEPLOY, scratch / f"{name}-{store}"))
    mine = deploy / "k8s/overlays/mine"
    mine.mkdir()
    url = {"name": "FULLRANK__STORE__URL", "value": f"s3://bucket/{name}"}
    operation = {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": url}
    patch = {
        "target": {"kind": "StatefulSet", "name": "controller"},
        "patch": json.dumps([operation]),
    }
    kustomization = {
        "resources": ["../../base"],
        "components": ["../../components/store"] * store,
        "namePrefix": "" if name == "fullrank" else f"{name}-",
        "labels": [{"pairs": {"app.kubernetes.io/instance": name}, "includeSelectors": True}],
        "replicas": [{"name": "learner", "count": 4}],
        "patches": [patch] * store,
    }
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return parse(render(mine))


def compared(objects: list[Manifest]) -> dict[str, Any]:
    """Objects by kind and name, whatever the digest in the ConfigMap's name."""
    text = json.dumps(objects)
    (config,) = (each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap")
    plain = json.loads(text.replace(config, config.rpartition("-")[0]))
    for each in plain:
        if each["kind"] == "PersistentVolumeClaim":
            each["metadata"].pop("annotations", None)
    return {f"{each['kind']} {each['metadata']['name']}": each for each in plain}


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("name", ["fullrank", "team-a"])
def test_a_release_has_the_objects_of_the_overlay_of_that_name(
    name: str, store: bool, tmp_path: Path
) -> None:
    chart = compared(released(name, *[STORE] * store))
    assert chart == compared(overlaid(name, store, tmp_path))


def test_the_chart_is_what_its_tool_makes_of_the_manifests() -> None:
    command = [sys.executable, str(ROOT / "tools/chart.py"), "--check"]
    helm("version")  # skips where the programs are missing
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("values", [(), (STORE, "learners=null")])
def test_every_object_is_what_the_release_s_schema_says(
    release: str, values: tuple[str, ...]
) -> None:
    validate(released("team-a", *values), release)


def test_helm_finds_no_fault() -> None:
    run = helm("lint", "--strict", str(CHART))
    assert run.returncode == 0, run.stdout + run.stderr


def test_two_releases_share_no_object_and_select_no_pod_of_each_other() -> None:
    one, other = released("team-a"), released("team-b")
    names = [{(each["kind"], each["metadata"]["name"]) for each in run} for run in (one, other)]
    assert not names[0] & names[1]
    assert not any(
        selects(selector, labels) for selector in selectors_of(one) for labels in labels_of(other)
    )


def test_values_replace_the_number_the_resources_the_images_and_the_run() -> None:
    values = ("learners=null", "image.registry=hub/", "image.tag=v9", "run=seed = 7")
    limits = "resources.learner.limits.memory=9Gi"
    objects = released("team-a", *values, limits)
    workloads, before = workloads_in(objects), workloads_in(released("team-a"))
    learner, controller = workloads["team-a-learner"], workloads["team-a-controller"]
    assert "replicas" not in learner.spec
    assert before["team-a-learner"].spec["replicas"] == 4
    assert learner.containers[0]["resources"] == {"limits": {"memory": "9Gi"}}
    assert controller.containers[0]["resources"] != learner.containers[0]["resources"]
    assert controller.containers[0]["image"] == "hub/fullrank-controller:v9"
    (config,) = (each for each in objects if each["kind"] == "ConfigMap")
    assert config["data"] == {"run.toml": "seed = 7"}
    for name in ("team-a-learner", "team-a-controller"):  # a changed run restarts its pods
        volume = workloads[name].volumes["configuration"]["configMap"]["name"]
        assert volume == config["metadata"]["name"]
        assert volume != before[name].volumes["configuration"]["configMap"]["name"]


@pytest.mark.parametrize(
    "value", ["learner=4", "learners=0", "image.registry=hub", "store.url=bucket", "run=7"]
)
def test_a_value_that_is_misspelt_or_out_of_bounds_is_refused(value: str) -> None:
    run = helm("template", "team-a", str(CHART), "--set", value)
    assert run.returncode != 0
    assert value.partition("=")[0].rpartition(".")[2] in run.stderr


def test_the_chart_has_the_version_of_the_code() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert chart["version"].replace("-", ".") == __version__


def test_claims_outlive_a_release() -> None:
    claims = [each for each in released("team-a") if each["kind"] == "PersistentVolumeClaim"]
    policies = [each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in claims]
    assert policies == ["keep", "keep"]
