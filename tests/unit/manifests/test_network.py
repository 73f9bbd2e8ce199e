"""Network policies: the pods that may reach each port, and the addresses beyond them."""

from ipaddress import ip_address, ip_network

from tests.kustomize import Manifest
from tests.workloads import (
    CONTROL,
    HEALTH,
    MONITOR,
    PROXY,
    PROXY_HEALTH,
    REPLAY,
    TRAINING,
    config_of,
    objects_of,
    selects,
    workloads_of,
)

COMPONENT = "app.kubernetes.io/component"
RUN = {"app.kubernetes.io/name": "fullrank", "app.kubernetes.io/instance": "fullrank"}


def _allowed(overlay: str, source: str, destination: str, port: int) -> bool:
    """True if the policies let pods of one workload reach a port of another's."""
    workloads = workloads_of(overlay)
    return all(
        _side(overlay, side, workloads[own].labels, workloads[peer].labels, port)
        for side, own, peer in (("egress", source, destination), ("ingress", destination, source))
    )


def _side(overlay: str, side: str, own: dict[str, str], peer: dict[str, str], port: int) -> bool:
    policies = [policy["spec"] for policy in objects_of(overlay, "NetworkPolicy")]
    binding = [
        policy
        for policy in policies
        if side.capitalize() in policy["policyTypes"] and selects(policy["podSelector"], own)
    ]
    rules = [rule for policy in binding for rule in policy.get(side, [])]
    return not binding or any(_fits(rule, peer, port) for rule in rules)


def _fits(rule: Manifest, peer: dict[str, str], port: int) -> bool:
    peers = rule.get("from", rule.get("to"))
    selectors = [each["podSelector"] for each in peers or () if "podSelector" in each]
    named = peers is None or any(selects(each, peer) for each in selectors)
    return named and port in [each["port"] for each in rule["ports"]]


def test_workloads_reach_one_another_only_on_the_ports_of_the_dialogue(overlay: str) -> None:
    names = sorted(workloads_of(overlay))
    ports = (HEALTH, TRAINING, REPLAY, MONITOR, PROXY, CONTROL, PROXY_HEALTH)
    reached = {
        (source, destination, port)
        for source in names
        for destination in names
        for port in ports
        if _allowed(overlay, source, destination, port)
    }
    dialled = {("collector", "controller", TRAINING), ("collector", "replay", REPLAY)}
    collectors = dialled if "collector" in names else set()
    assert reached == collectors | {
        ("learner", "controller", TRAINING),
        ("learner", "replay", REPLAY),
        ("controller", "replay", REPLAY),
    }


def test_from_outside_only_health_can_be_asked(overlay: str) -> None:
    stranger = {COMPONENT: "stranger"}
    for name, workload in workloads_of(overlay).items():
        declared = {port["containerPort"] for port in workload.ports}
        open_ports = {
            port for port in declared if _side(overlay, "ingress", workload.labels, stranger, port)
        }
        assert open_ports == declared & {HEALTH, PROXY_HEALTH}, name


def test_monitors_reach_the_monitor_port_of_the_controller_and_nothing_else(overlay: str) -> None:
    monitor = {COMPONENT: "monitor", **RUN}
    reached = {
        (name, port["containerPort"])
        for name, workload in workloads_of(overlay).items()
        for port in workload.ports
        if _side(overlay, "ingress", workload.labels, monitor, port["containerPort"])
        and _side(overlay, "egress", monitor, workload.labels, port["containerPort"])
    }
    assert reached == {("controller", MONITOR)}
    [controller] = workloads_of(overlay)["controller"].containers
    assert config_of(controller, overlay).monitor.listen == f"0.0.0.0:{MONITOR}"


STORE = ("198.51.100.7", 443)
CREDENTIALS = {
    *(("169.254.170.23", 80), ("fd00:ec2::23", 80)),  # EKS Pod Identity
    *(("169.254.169.254", 80), ("169.254.169.252", 988)),  # GKE
}
"""Addresses and ports at which a pod asks for the credentials of its service account."""


def _leaves(overlay: str, role: str, address: str, port: int) -> bool:
    """True if the policies let pods of a role reach an address that is no pod's."""
    policies = [policy["spec"] for policy in objects_of(overlay, "NetworkPolicy")]
    rules = [
        rule
        for policy in policies
        if selects(policy["podSelector"], RUN | {COMPONENT: role})
        for rule in policy.get("egress", [])
        if port in [each["port"] for each in rule["ports"]]
    ]
    blocks = [each["ipBlock"] for rule in rules for each in rule.get("to", []) if "ipBlock" in each]
    anywhere = any("to" not in rule for rule in rules)
    return anywhere or any(ip_address(address) in ip_network(block["cidr"]) for block in blocks)


def test_only_a_controller_with_a_store_reaches_that_and_the_credentials_of_its_identity() -> None:
    def reached(overlay: str, role: str) -> set[tuple[str, int]]:
        return {each for each in CREDENTIALS | {STORE} if _leaves(overlay, role, *each)}

    assert reached("store", "controller") == CREDENTIALS | {STORE}
    assert reached("store", "learner") == reached("eks", "controller") == set()
    assert not _leaves("store", "controller", STORE[0], 80)
