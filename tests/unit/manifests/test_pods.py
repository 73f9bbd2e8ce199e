"""Pods of every overlay: permissions, resources, probes and storage."""

from tests.workloads import (
    HEALTH,
    PROXY_HEALTH,
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
    stateful = {"controller", "replay", "standby"} & set(workloads_of(overlay))
    assert claims == stateful | ({"mirror"} if "standby" in stateful else set())
    for name in stateful:
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
