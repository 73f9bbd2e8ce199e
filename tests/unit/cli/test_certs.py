"""``fullrank certs``: make, rotate, show, and export without the authority."""

import base64
import json
from pathlib import Path

import yaml

from .conftest import Command


def test_certificates_are_made_shown_and_renewed(fullrank: Command, tmp_path: Path) -> None:
    folder = str(tmp_path / "certs")
    roles = ("controller", "learner", "replay", "monitor", "admin", "collector")
    names = ", ".join(roles)
    made = fullrank("certs", "init", folder, "--run", "mine")
    assert made == (0, f"{folder}: made {names}\n", "")
    assert fullrank("certs", "init", folder, "--run", "mine").output == f"{folder}: made nothing\n"
    shown = json.loads(fullrank("certs", "show", folder, "--json").output)
    assert [row["name"] for row in shown] == [f"fullrank://mine/{role}" for role in roles]
    renewed = fullrank("certs", "rotate", folder, "--days", "9")
    assert renewed.output == f"{folder}: renewed {names}\n"
    later = json.loads(fullrank("certs", "show", folder, "--json").output)
    assert all(row["until"] < before["until"] for row, before in zip(later, shown, strict=True))


def test_a_cluster_gets_what_its_services_need_and_no_more(
    fullrank: Command, tmp_path: Path
) -> None:
    fullrank("certs", "init", str(tmp_path))
    printed = yaml.safe_load_all(fullrank("certs", "secrets", str(tmp_path)).output)
    secrets = {item["metadata"]["name"]: item for item in printed}
    deployed = ("controller", "learner", "replay", "collector", "monitor")
    assert set(secrets) == {f"certificate-{role}" for role in deployed}
    for name, secret in secrets.items():
        folder = tmp_path / name.removeprefix("certificate-")
        assert secret["type"] == "kubernetes.io/tls"
        assert {key: base64.b64decode(data) for key, data in secret["data"].items()} == {
            path.name: path.read_bytes() for path in folder.iterdir()
        }


def test_secrets_have_the_name_of_their_run_as_its_manifests_do(
    fullrank: Command, tmp_path: Path
) -> None:
    fullrank("certs", "init", str(tmp_path), "--run", "team-a")
    for secret in yaml.safe_load_all(fullrank("certs", "secrets", str(tmp_path)).output):
        assert secret["metadata"]["name"].startswith("team-a-certificate-")
        assert secret["metadata"]["labels"]["app.kubernetes.io/instance"] == "team-a"


def test_a_folder_without_certificates_is_one_line(fullrank: Command, tmp_path: Path) -> None:
    for verb in ("show", "secrets"):
        code, output, error = fullrank("certs", verb, str(tmp_path))
        assert (code, output) == (2, "")
        assert f"{tmp_path} has no certificates; `fullrank certs init` makes them" in error
    code, output, error = fullrank("certs", "rotate", str(tmp_path))
    assert (code, output) == (2, "")
    assert error.startswith(f"fullrank: cannot read {tmp_path}/authority/ca.crt: No such file")
    assert len(error.splitlines()) == 1
