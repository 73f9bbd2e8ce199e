"""Services in Compose: the certificate of their own role alone, and an end with their run."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kustomize import DEPLOY
from tests.workloads import config_of, service_of, workloads_of

from fullrank.config import load
from fullrank.host.certificates import Role


def test_each_container_listens_and_dials_with_its_own_role_s_certificate_alone(
    overlay: str,
) -> None:
    for workload in workloads_of(overlay).values():
        for container in workload.containers:
            service, tls = service_of(container), config_of(container, overlay).tls
            role = {"straggler": "learner"}.get(service, service)
            mounts = [
                mount
                for mount in container["volumeMounts"]
                if "secret" in workload.volumes[mount["name"]]
            ]
            assert [mount["mountPath"] for mount in mounts] == [f"{tls.certificates}/{role}"]
            secret = workload.volumes[mounts[0]["name"]]["secret"]
            assert secret["secretName"] == f"certificate-{role}"
            assert not secret["defaultMode"] & 0o007
            assert not tls.allow_plaintext
            behind = service == "learner" and "initContainers" in workload.pod
            assert tls.sidecar == behind


def test_a_compose_service_sees_its_own_role_s_certificate_alone() -> None:
    file = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text(encoding="utf-8"))
    folder = load(DEPLOY / "config/run.toml", environ={}).config.tls.certificates
    assert load(DEPLOY / "config/lab/straggler.toml", environ={}).config.tls.certificates == folder
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
        "collector": {"collector"},
        "replay": {"replay"},
        "straggler": {"learner"},
        "admin": {"monitor", "admin"},
        "dashboard": {"monitor"},
        "prometheus": set(),
        "grafana": set(),
    }


FILE = Path(__file__).resolve().parents[3] / "deploy/docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return content["services"]


@pytest.mark.parametrize("name", ["controller", "replay", "learner", "collector"])
def test_a_service_of_a_run_ends_with_it_and_is_restarted_without_limit_until_then(
    services: dict[str, Any], name: str
) -> None:
    assert services[name]["restart"] == "on-failure"
    assert services[name]["command"][0] == "serve"
    assert "--until-finished" in services[name]["command"]
