"""Differences between the overlays: those of the repository and the one in the guide."""

import re
import shutil
import tomllib
from pathlib import Path

from tests.kustomize import DEPLOY, parse, render
from tests.workloads import PROXY, TRAINING, config_of, workloads_of


def test_each_learner_of_the_local_overlay_dials_its_own_sidecar() -> None:
    learner = workloads_of("local")["learner"]
    (sidecar,), (main,) = learner.pod["initContainers"], learner.pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    proxy, dialled = config_of(sidecar, "local"), config_of(main, "local").controller.address
    straggler = tomllib.loads((DEPLOY / "config/straggler.toml").read_text(encoding="utf-8"))
    assert dialled == f"127.0.0.1:{PROXY}"
    assert straggler["sidecar"]["address"] == f"0.0.0.0:{PROXY}"
    assert proxy.controller.address == f"controller:{TRAINING}"


def test_a_job_s_learners_are_the_pods_of_the_stateful_set_and_end_for_good() -> None:
    job, standing = workloads_of("job")["learner"], workloads_of("eks")["learner"]
    assert (job.kind, job.spec["completionMode"]) == ("Job", "Indexed")
    assert job.labels == standing.labels
    own = {"restartPolicy": "Never", "subdomain": "learner"}
    assert own.items() <= job.pod.items()
    elsewhere = {"nodeSelector", "tolerations", "terminationGracePeriodSeconds"}
    shared = set(standing.pod) - elsewhere - {"containers"}
    assert {key: job.pod[key] for key in shared} == {key: standing.pod[key] for key in shared}
    (ending,), (lasting,) = job.pod["containers"], standing.pod["containers"]
    assert ending["args"][-1] == "--until-finished"
    assert {**ending, "args": None} == {**lasting, "args": None, "image": ending["image"]}


def test_on_eks_learners_live_on_spot_machines_and_what_has_state_does_not() -> None:
    capacity = {
        name: workload.pod["nodeSelector"]["eks.amazonaws.com/capacityType"]
        for name, workload in workloads_of("eks").items()
    }
    assert capacity == {"controller": "ON_DEMAND", "replay": "ON_DEMAND", "learner": "SPOT"}
    tolerating = [name for name, each in workloads_of("eks").items() if "tolerations" in each.pod]
    assert tolerating == ["learner"]


def test_the_overlay_of_the_guide_wins_where_it_speaks(tmp_path: Path) -> None:
    deploy = Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))
    guide = (DEPLOY.parent / "docs/deploy/kubernetes.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    mine = deploy / "k8s/overlays/mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(block)
    (mine / "run.toml").write_text("learners = 15\n")
    objects = {(each["kind"], each["metadata"]["name"]): each for each in parse(render(mine))}
    assert objects["StatefulSet", "learner"]["spec"]["replicas"] == 15
    (configuration,) = (each for kind, each in objects.items() if kind[0] == "ConfigMap")
    assert configuration["data"]["run.toml"] == "learners = 15\n"
    for name in ("controller", "learner", "replay"):
        volumes = objects["StatefulSet", name]["spec"]["template"]["spec"]["volumes"]
        used = [volume["configMap"]["name"] for volume in volumes if "configMap" in volume]
        assert used == [configuration["metadata"]["name"]]
