"""``fullrank train --tls``: the same run under its own certificates, and no key leaks."""

from pathlib import Path

import pytest
from tests.e2e.commands import config_of, digests, fullrank, processes_of, settings, tracebacks

from fullrank.host.certificates import KEY, Role
from fullrank.local import LocalRun

pytestmark = pytest.mark.e2e


def _secrets(certificates: Path) -> set[bytes]:
    """Lines of every private key."""
    keys = [*certificates.rglob(KEY), certificates / "authority/ca.key"]
    assert len(keys) == len(Role) + 1
    return {line for key in keys for line in key.read_bytes().splitlines() if len(line) > 40}


def test_a_run_under_tls_commits_the_same_bits_and_leaks_no_key(run_dir: Path) -> None:
    options = settings("iterations=6")
    outcome = fullrank("train", "--tls", "--run-dir", str(run_dir), *options)
    assert (outcome.code, outcome.error) == (0, "")
    config = config_of(run_dir)
    assert config.tls.certificates == str(run_dir / "certificates")
    assert digests(run_dir) == [each.update_digest for each in LocalRun(config).train()]
    assert tracebacks(run_dir) == []
    assert processes_of(run_dir) == []
    certificates = run_dir / "certificates"
    secrets = _secrets(certificates)
    written = [
        path
        for path in run_dir.rglob("*")
        if path.is_file() and certificates not in path.parents and path.suffix != ".rows"
    ]
    assert any(path.suffix == ".log" for path in written)
    for path in written:
        data = path.read_bytes()
        assert b"PRIVATE KEY" not in data, path
        assert not [line for line in secrets if line in data], path


def test_certificates_that_cannot_be_used_end_a_run_with_one_line(run_dir: Path) -> None:
    folder = run_dir / "mine"
    assert fullrank("certs", "init", str(folder)).code == 0
    (folder / Role.REPLAY / KEY).write_bytes((folder / Role.LEARNER / KEY).read_bytes())
    path = run_dir / "run"
    outcome = fullrank(
        "train", "--run-dir", str(path), *settings(f"tls.certificates='{folder}'", "iterations=2")
    )
    assert outcome.code == 2
    assert "tls.key beside it is another certificate's" in outcome.error
    assert len(outcome.error.splitlines()) == 1
    assert processes_of(path) == []


@pytest.mark.parametrize("service", ["controller", "replay"])
def test_a_service_refuses_to_listen_beyond_loopback_in_plain_text(
    run_dir: Path, service: str
) -> None:
    listen = settings(f"{service}.listen=0.0.0.0:0", "replay.address=127.0.0.1:1")
    outcome = fullrank("serve", service, "--run-dir", str(run_dir), *listen)
    assert outcome.code == 2
    (line,) = (each for each in outcome.error.splitlines() if each.startswith("fullrank: "))
    assert "refusing to listen on 0.0.0.0:0 in plain text" in line
    assert "fullrank certs init DIR" in line
