"""What the rendered Kubernetes manifests promise, read as a cluster would read them."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from tests.kustomize import DEPLOY, OVERLAYS, Manifest, manifests, parse, render

from fullrank.config import RunConfig, load
from fullrank.rpc.identity import Role
from fullrank.wiring import code_of

RELEASES = ("1.33", "1.35", "1.37")
"""Native sidecars are stable from the first on."""
RUNNING = ("StatefulSet", "Job")
NAME = "app.kubernetes.io/name"
HEALTH, TRAINING, REPLAY, MONITOR = 50050, 50051, 50052, 50053
PROXY, CONTROL, PROXY_HEALTH = 50061, 50062, 50063


@pytest.fixture(params=sorted(path.name for path in OVERLAYS.iterdir()))
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A StatefulSet or a Job."""

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


def _all(overlay: str, *kinds: str) -> Iterator[Manifest]:
    return (manifest for manifest in manifests(overlay) if manifest["kind"] in kinds)


def _workloads(overlay: str) -> dict[str, Workload]:
    return {
        manifest["metadata"]["name"]: Workload(
            kind=manifest["kind"], name=manifest["metadata"]["name"], spec=manifest["spec"]
        )
        for manifest in _all(overlay, *RUNNING)
    }


def _containers(overlay: str) -> list[Manifest]:
    return [each for workload in _workloads(overlay).values() for each in workload.containers]


def _selects(selector: Manifest, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "this reader knows no other selector"
    return dict(selector.get("matchLabels", {})).items() <= labels.items()


def _service(container: Manifest) -> str:
    """The service whose image a container runs."""
    name: str = container["image"].rpartition(":")[0].rpartition("/")[2]
    return name.removeprefix("fullrank-")


def _option(container: Manifest, option: str) -> str:
    """An option of the command that a container runs: its own, or that of the image."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    commands = dict(
        re.findall(r"^FROM runtime AS (\w+)$.*?^CMD (\[.*?\])$", dockerfile, re.M | re.S)
    )
    command = container.get("args") or json.loads(commands[_service(container)])
    assert command[:2] == ["serve", _service(container)]
    return str(command[command.index(option) + 1])


def _config(container: Manifest) -> RunConfig:
    """What a container's settings resolve to: its TOML file under its variables."""
    file = Path(_option(container, "--config"))
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts[str(file.parent)]["name"] == "configuration"
    environ = {each["name"]: each.get("value", "") for each in container.get("env", [])}
    return load(DEPLOY / "config" / file.name, environ=environ).check().config


@pytest.mark.parametrize("release", RELEASES)
def test_every_object_is_what_the_release_s_schema_says(overlay: str, release: str) -> None:
    for manifest in manifests(overlay):
        kubernetes_validate.validate(manifest, release, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    service = next(_all("local", "Service"))
    wrong = {**service, "spec": {**service["spec"], "publishNotReadyAdresses": True}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, RELEASES[0], strict=True)


def test_everything_lies_in_one_namespace_that_enforces_the_restricted_standard(
    overlay: str,
) -> None:
    (namespace,) = _all(overlay, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    namespaced = [each for each in manifests(overlay) if each["kind"] not in CLUSTER_WIDE]
    assert {each["metadata"]["namespace"] for each in namespaced} == {"fullrank"}


CLUSTER_WIDE = ("Namespace", "StorageClass")


def test_pods_are_restricted_and_know_nothing_of_the_cluster(overlay: str) -> None:
    for workload in _workloads(overlay).values():
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
    for container in _containers(overlay):
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert set(container["resources"]["limits"]) == {"memory"}


def test_probes_ask_only_declared_health_ports_and_life_depends_on_no_peer(overlay: str) -> None:
    for container in _containers(overlay):
        ports = {port["containerPort"] for port in container["ports"]}
        health = {HEALTH, PROXY_HEALTH} & ports
        probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
        assert {"startupProbe", "livenessProbe"} <= set(probes)
        assert {probe["grpc"]["port"] for probe in probes.values()} == health
        assert probes["livenessProbe"]["grpc"]["service"] == "live"
        assert probes["startupProbe"]["grpc"]["service"] == "live"
        assert _config(container).health.address == f"0.0.0.0:{health.pop()}"


def test_pods_are_ready_when_their_service_is_at_work(overlay: str) -> None:
    for workload in _workloads(overlay).values():
        (container,) = workload.pod["containers"]
        assert container["readinessProbe"]["grpc"] == {"port": HEALTH}


def test_names_of_ports_are_unique_within_a_pod(overlay: str) -> None:
    for workload in _workloads(overlay).values():
        ports = [port for container in workload.containers for port in container["ports"]]
        for key in ("name", "containerPort"):
            assert len({port[key] for port in ports}) == len(ports)


def test_services_find_their_pods_on_ports_these_declare(overlay: str) -> None:
    for service in _all(overlay, "Service"):
        workload = _workloads(overlay)[service["metadata"]["name"]]
        assert service["spec"]["clusterIP"] == "None"
        assert _selects({"matchLabels": service["spec"]["selector"]}, workload.labels)
        declared = {port["containerPort"] for each in workload.containers for port in each["ports"]}
        assert {port["port"] for port in service["spec"]["ports"]} <= declared
        assert workload.name in (
            workload.spec.get("serviceName"),
            workload.pod.get("subdomain"),
        )


def test_selectors_hit_the_pods_of_their_workload_alone(overlay: str) -> None:
    workloads = _workloads(overlay)
    budgets = {each["metadata"]["name"]: each["spec"] for each in _all(overlay, *BUDGETS)}
    assert set(budgets) == set(workloads)
    for name in workloads:
        selector = budgets[name]["selector"]
        assert [each for each in workloads if _selects(selector, workloads[each].labels)] == [name]
        if workloads[name].kind == "StatefulSet":
            assert workloads[name].spec["selector"] == selector


BUDGETS = ("PodDisruptionBudget",)


def test_no_more_learners_are_disturbed_at_a_time_than_the_code_tolerates(overlay: str) -> None:
    learner = _workloads(overlay)["learner"]
    (budget,) = (b["spec"] for b in _all(overlay, *BUDGETS) if b["metadata"]["name"] == "learner")
    config = _config(learner.pod["containers"][0])
    tolerance = int(code_of(config, units=config.environment.agents).tolerance)
    replicas = learner.spec.get("replicas") or learner.spec["completions"]
    assert replicas == learner.spec.get("parallelism", replicas) == config.learners
    if learner.kind == "StatefulSet":
        assert budget["maxUnavailable"] <= tolerance
    else:  # the budget of a Job can only count what must stay
        assert set(budget) == {"selector", "minAvailable"}
        assert replicas - budget["minAvailable"] <= tolerance


def test_learners_are_spread_over_zones_and_machines(overlay: str) -> None:
    learner = _workloads(overlay)["learner"]
    spread = learner.pod["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == [
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    ]
    assert all(_selects(each["labelSelector"], learner.labels) for each in spread)


def test_all_images_have_one_tag_that_names_a_build(overlay: str) -> None:
    tags = {container["image"].rpartition(":")[2] for container in _containers(overlay)}
    assert len(tags) == 1
    assert tags != {"latest"}


def test_the_configuration_is_the_very_files_that_compose_mounts(overlay: str) -> None:
    (mounted,) = _all(overlay, "ConfigMap")
    files = sorted((DEPLOY / "config").glob("*.toml"))
    assert mounted["data"] == {file.name: file.read_text(encoding="utf-8") for file in files}
    for workload in _workloads(overlay).values():
        volumes = {volume["name"]: volume for volume in workload.pod["volumes"]}
        assert volumes["configuration"]["configMap"]["name"] == mounted["metadata"]["name"]


def test_each_container_listens_and_dials_with_its_own_role_s_certificate_alone(
    overlay: str,
) -> None:
    for workload in _workloads(overlay).values():
        volumes = {volume["name"]: volume for volume in workload.pod["volumes"]}
        for container in workload.containers:
            service, tls = _service(container), _config(container).tls
            role = {"straggler": "learner"}.get(service, service)
            mounts = [
                mount for mount in container["volumeMounts"] if "secret" in volumes[mount["name"]]
            ]
            assert [mount["mountPath"] for mount in mounts] == [f"{tls.certificates}/{role}"]
            secret = volumes[mounts[0]["name"]]["secret"]
            assert secret["secretName"] == f"certificate-{role}"
            assert not secret["defaultMode"] & 0o007
            assert not tls.allow_plaintext
            behind = service == "learner" and "initContainers" in workload.pod
            assert tls.sidecar == behind


def test_a_compose_service_sees_its_own_role_s_certificate_alone() -> None:
    file = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text(encoding="utf-8"))
    folder = load(DEPLOY / "config/run.toml", environ={}).config.tls.certificates
    assert load(DEPLOY / "config/straggler.toml", environ={}).config.tls.certificates == folder
    seen = {
        name: {
            mount.removesuffix(":ro").removeprefix(f"certificate-{role}:{folder}/")
            for mount in service["volumes"]
            for role in Role
            if mount.startswith(f"certificate-{role}:")
        }
        for name, service in file["services"].items()
    }
    assert seen.pop("certificates") == set(Role)
    assert seen == {
        "controller": {"controller"},
        "learner": {"learner"},
        "replay": {"replay"},
        "straggler": {"learner"},
        "admin": {"monitor", "admin"},
        "dashboard": {"monitor"},
        "prometheus": set(),
        "grafana": set(),
    }


def test_what_a_service_writes_lies_on_a_claimed_volume(overlay: str) -> None:
    claims = {claim["metadata"]["name"] for claim in _all(overlay, "PersistentVolumeClaim")}
    assert claims == {"controller", "replay"}
    for name in claims:
        workload = _workloads(overlay)[name]
        (container,) = workload.pod["containers"]
        run_dir = _option(container, "--run-dir")
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in workload.pod["volumes"]}
        assert volumes[mounted[run_dir]]["persistentVolumeClaim"] == {"claimName": name}


def test_when_all_are_told_to_stop_the_controller_is_the_first_and_replay_the_last(
    overlay: str,
) -> None:
    def wait_s(name: str) -> int:
        (container,) = _workloads(overlay)[name].pod["containers"]
        return int(
            container.get("lifecycle", {})
            .get("preStop", {})
            .get("sleep", {"seconds": 0})["seconds"]
        )

    assert wait_s("controller") < wait_s("learner") < wait_s("replay")
    for name, workload in _workloads(overlay).items():
        assert workload.pod["terminationGracePeriodSeconds"] >= wait_s(name) + 15


def _allowed(overlay: str, source: str, destination: str, port: int) -> bool:
    """Whether the policies let pods of one workload reach a port of another's."""
    workloads = _workloads(overlay)
    return all(
        _side(overlay, side, workloads[own].labels, workloads[peer].labels, port)
        for side, own, peer in (("egress", source, destination), ("ingress", destination, source))
    )


def _side(overlay: str, side: str, own: dict[str, str], peer: dict[str, str], port: int) -> bool:
    policies = [policy["spec"] for policy in _all(overlay, "NetworkPolicy")]
    binding = [
        policy
        for policy in policies
        if side.capitalize() in policy["policyTypes"] and _selects(policy["podSelector"], own)
    ]
    rules = [rule for policy in binding for rule in policy.get(side, [])]
    return not binding or any(_fits(rule, peer, port) for rule in rules)


def _fits(rule: Manifest, peer: dict[str, str], port: int) -> bool:
    peers = rule.get("from", rule.get("to"))
    named = peers is None or any(_selects(each["podSelector"], peer) for each in peers)
    return named and port in [each["port"] for each in rule["ports"]]


def test_workloads_reach_one_another_only_on_the_ports_of_the_dialogue(overlay: str) -> None:
    names = sorted(_workloads(overlay))
    ports = (HEALTH, TRAINING, REPLAY, MONITOR, PROXY, CONTROL, PROXY_HEALTH)
    reached = {
        (source, destination, port)
        for source in names
        for destination in names
        for port in ports
        if _allowed(overlay, source, destination, port)
    }
    assert reached == {
        ("learner", "controller", TRAINING),
        ("learner", "replay", REPLAY),
        ("controller", "replay", REPLAY),
    }


def test_from_outside_only_health_can_be_asked(overlay: str) -> None:
    stranger = {NAME: "stranger"}
    for name, workload in _workloads(overlay).items():
        declared = {port["containerPort"] for each in workload.containers for port in each["ports"]}
        open_ports = {
            port for port in declared if _side(overlay, "ingress", workload.labels, stranger, port)
        }
        assert open_ports == declared & {HEALTH, PROXY_HEALTH}, name


def test_monitors_reach_the_monitor_port_of_the_controller_and_nothing_else(overlay: str) -> None:
    monitor = {NAME: "monitor"}
    reached = {
        (name, port["containerPort"])
        for name, workload in _workloads(overlay).items()
        for each in workload.containers
        for port in each["ports"]
        if _side(overlay, "ingress", workload.labels, monitor, port["containerPort"])
        and _side(overlay, "egress", monitor, workload.labels, port["containerPort"])
    }
    assert reached == {("controller", MONITOR)}
    [controller] = _workloads(overlay)["controller"].containers
    assert _config(controller).monitor.listen == f"0.0.0.0:{MONITOR}"


def test_names_can_be_looked_up(overlay: str) -> None:
    for workload in _workloads(overlay).values():
        assert _side(overlay, "egress", workload.labels, {}, 53)


def test_each_learner_of_the_local_overlay_dials_its_own_sidecar() -> None:
    learner = _workloads("local")["learner"]
    (sidecar,), (main,) = learner.pod["initContainers"], learner.pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    proxy, dialled = _config(sidecar), _config(main).controller.address
    straggler = tomllib.loads((DEPLOY / "config/straggler.toml").read_text(encoding="utf-8"))
    assert dialled == f"127.0.0.1:{PROXY}"
    assert straggler["straggler"]["address"] == f"0.0.0.0:{PROXY}"
    assert proxy.controller.address == f"controller:{TRAINING}"


def test_without_the_component_learners_dial_the_controller() -> None:
    (main,) = _workloads("eks")["learner"].containers
    assert _config(main).controller.address == f"controller:{TRAINING}"


def test_a_job_s_learners_are_the_pods_of_the_stateful_set_and_end_for_good() -> None:
    job, standing = _workloads("job")["learner"], _workloads("eks")["learner"]
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
        for name, workload in _workloads("eks").items()
    }
    assert capacity == {"controller": "ON_DEMAND", "replay": "ON_DEMAND", "learner": "SPOT"}
    tolerating = [name for name, each in _workloads("eks").items() if "tolerations" in each.pod]
    assert tolerating == ["learner"]


def test_on_eks_disks_are_of_the_overlay_s_storage_class() -> None:
    (storage,) = _all("eks", "StorageClass")
    claims = _all("eks", "PersistentVolumeClaim")
    assert {claim["spec"]["storageClassName"] for claim in claims} == {storage["metadata"]["name"]}


def test_a_job_on_eks_takes_spot_machines_and_the_overlay_s_images(tmp_path: Path) -> None:
    deploy = Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))
    overlay = deploy / "k8s/overlays/eks/kustomization.yaml"
    chosen = "components: [../../components/job, ../../components/straggler]"
    overlay.write_text(overlay.read_text().replace("components: []", chosen))
    (job,) = (each for each in parse(render(overlay.parent)) if each["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"eks.amazonaws.com/capacityType": "SPOT"}
    images = [each["image"] for each in (*pod["initContainers"], *pod["containers"])]
    assert all(image.startswith("registry.example/") for image in images)


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
