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
