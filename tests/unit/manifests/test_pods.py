"""Pods of every overlay: permissions, resources, probes, storage, and what each overlay changes."""

import tomllib

import yaml
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
    selects,
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
        assert set(container["resources"]["limits"]) - {"nvidia.com/gpu"} == {"memory"}


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
    straggler = tomllib.loads((DEPLOY / "config/lab/straggler.toml").read_text(encoding="utf-8"))
    assert dialled == f"127.0.0.1:{PROXY}"
    assert straggler["sidecar"]["address"] == f"0.0.0.0:{PROXY}"
    assert proxy.controller.address == f"controller:{TRAINING}"


def test_a_job_s_learners_are_the_pods_of_the_stateful_set_and_end_for_good() -> None:
    job, standing = workloads_of("job")["learner"], workloads_of("eks")["learner"]
    assert (job.kind, job.spec["completionMode"]) == ("Job", "Indexed")
    assert job.labels == standing.labels
    own = {"restartPolicy": "Never", "subdomain": "learner"}
    assert own.items() <= job.pod.items()
    cloud = {"nodeSelector", "tolerations", "terminationGracePeriodSeconds", "priorityClassName"}
    shared = set(standing.pod) - cloud - {"containers"}
    assert {key: job.pod[key] for key in shared} == {key: standing.pod[key] for key in shared}
    (ending,), (lasting,) = job.pod["containers"], standing.pod["containers"]
    assert ending["args"][-1] == "--until-finished"
    assert {**ending, "args": None} == {**lasting, "args": None, "image": ending["image"]}


def test_on_eks_learners_live_on_spot_machines_and_what_has_state_does_not() -> None:
    """Machines of a managed group or of Karpenter, which have the same labels and taints."""
    cluster = yaml.safe_load((DEPLOY / "k8s/cluster/eks/eksctl.yaml").read_text())
    groups = {each["labels"]["fullrank/pool"]: each for each in cluster["managedNodeGroups"]}
    machines = parse(render(DEPLOY / "k8s/cluster/karpenter"))
    (pool,) = (each for each in machines if each["kind"] == "NodePool")
    made = pool["spec"]["template"]
    assert made["metadata"]["labels"] == groups["learners"]["labels"]
    assert made["spec"]["taints"] == groups["learners"]["taints"]
    assert groups["learners"]["spot"]
    assert not {"spot", "taints"} & set(groups["services"])
    workloads = workloads_of("eks")
    chosen = {name: each.pod["nodeSelector"]["fullrank/pool"] for name, each in workloads.items()}
    assert chosen == {"controller": "services", "replay": "services", "learner": "learners"}
    [(name, [toleration])] = (
        (name, each.pod["tolerations"])
        for name, each in workloads.items()
        if "tolerations" in each.pod
    )
    [taint] = made["spec"]["taints"]
    assert (name, toleration["key"], toleration["effect"]) == (
        "learner",
        taint["key"],
        taint["effect"],
    )


def test_controller_and_replay_want_to_be_in_one_zone(overlay: str) -> None:
    workloads = workloads_of(overlay)
    for name, other in (("controller", "replay"), ("replay", "controller")):
        affinity = workloads[name].pod["affinity"]["podAffinity"]
        [rule] = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
        term = rule["podAffinityTerm"]
        assert term["topologyKey"] == "topology.kubernetes.io/zone"
        found = {
            each for each in workloads if selects(term["labelSelector"], workloads[each].labels)
        }
        assert found == {other}


def test_each_workload_has_a_service_account_of_its_own_and_reads_no_token(overlay: str) -> None:
    accounts = {each["metadata"]["name"]: each for each in objects_of(overlay, "ServiceAccount")}
    assert not any(each["automountServiceAccountToken"] for each in accounts.values())
    used = {
        name: each.pod.get("serviceAccountName") for name, each in workloads_of(overlay).items()
    }
    assert used == {name: name for name in accounts}
