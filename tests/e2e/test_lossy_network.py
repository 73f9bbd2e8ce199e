"""A network that loses packets makes a run slower and changes no bit of it."""

from pathlib import Path

import pytest
from tests.e2e.commands import centralised, digests, fullrank, records, settings, works

pytestmark = pytest.mark.e2e

EVERY = 20
"""Number of packets of which one is lost."""
NETWORK = f"""
ip link set lo up || exit
iptables -A INPUT -i lo -m statistic --mode nth --every {EVERY} --packet 0 -j DROP || exit
"$@"
code=$?
iptables -nvxL INPUT >&3
exit $code
"""
"""Script that runs a command and then prints how many packets were lost."""


@pytest.fixture
def losses(tmp_path: Path) -> Path:
    """Counter of lost packets."""
    path = tmp_path / "losses"
    if not works(*lossy(path, "true")):
        pytest.skip("needs unshare and iptables, to drop packets in a network namespace")
    return path


def lossy(losses: Path, *words: str) -> list[str]:
    """Prefix of a command that runs on a network of its own."""
    script = f"exec 3>{losses}{NETWORK}"
    return ["unshare", "--map-root-user", "--net", "sh", "-c", script, "sh", *words]


def test_a_network_that_loses_packets_changes_no_bit(run_dir: Path, losses: Path) -> None:
    on_ports = [f"{name}.address=127.0.0.1:0" for name in ("controller", "replay", "monitor")]
    options = ["--run-dir", str(run_dir), *settings("iterations=8", *on_ports)]
    outcome = fullrank("train", *options, within=lossy(losses))
    assert (outcome.code, outcome.error) == (0, "")
    [drops] = [line.split() for line in losses.read_text().splitlines() if "DROP" in line]
    assert int(drops[0]) >= 2  # a run of 8 iterations has more than a hundred packets
    assert {record.term for record in records(run_dir)} == {1}
    assert digests(run_dir) == centralised(run_dir)
