"""Pods of every overlay: permissions, resources, probes, storage, and what each overlay changes."""

import re
import shutil
import tomllib
from pathlib import Path

from tests.kustomize import DEPLOY, parse, render
from tests.workloads import (
    HEALTH,
    PROXY,
    PROXY_HEALTH,
    TRAINING,
    config_of,
    containers_of,
    objects_of,
    option_of,
    workloads_of,
)


def test_pods_are_restricted_and_know_nothing_of_the_cluster(overlay: str) -> None:
    for workload in workloads_of(overlay).values():
        pod, security = workload.pod, workload.pod["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] == security["fsGroup"] == 10001
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        assert not pod["enableServiceLinks"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in workload.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_every_container_says_what_it_needs_and_none_throttles_its_cpu(overlay: str) -> None:
    for container in containers_of(overlay):
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert set(container["resources"]["limits"]) == {"memory"}


def test_probes_ask_only_declared_health_ports_and_life_depends_on_no_peer(overlay: str) -> None:
    for container in containers_of(overlay):
        ports = {port["containerPort"] for port in container["ports"]}
        health = {HEALTH, PROXY_HEALTH} & ports
        probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
        assert {"startupProbe", "livenessProbe"} <= set(probes)
        assert {probe["grpc"]["port"] for probe in probes.values()} == health
        assert probes["livenessProbe"]["grpc"]["service"] == "live"
        assert probes["startupProbe"]["grpc"]["service"] == "live"
        assert config_of(container, overlay).health.address == f"0.0.0.0:{health.pop()}"


def test_all_images_have_one_tag_that_names_a_build(overlay: str) -> None:
    tags = {container["image"].rpartition(":")[2] for container in containers_of(overlay)}
    assert len(tags) == 1
    assert tags != {"latest"}


def test_what_a_service_writes_lies_on_a_claimed_volume(overlay: str) -> None:
    claims = {claim["metadata"]["name"] for claim in objects_of(overlay, "PersistentVolumeClaim")}
    assert claims == {"replay"} | ({"controller"} if overlay != "store" else set())
    for name in claims:
        workload = workloads_of(overlay)[name]
        (container,) = workload.pod["containers"]
        run_dir = option_of(container, "--run-dir")
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert workload.volumes[mounted[run_dir]]["persistentVolumeClaim"] == {"claimName": name}


def test_when_all_are_told_to_stop_the_controller_is_the_first_and_replay_the_last(
    overlay: str,
) -> None:
    def wait_s(name: str) -> int:
        (container,) = workloads_of(overlay)[name].pod["containers"]
        return int(
            container.get("lifecycle", {})
            .get("preStop", {})
            .get("sleep", {"seconds": 0})["seconds"]
        )

    assert wait_s("controller") < wait_s("learner") < wait_s("replay")
    for name, workload in workloads_of(overlay).items():
        assert workload.pod["terminationGracePeriodSeconds"] >= wait_s(name) + 15


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
