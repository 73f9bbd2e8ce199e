"""A service that moves to another address is found there by its name."""

import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.e2e.commands import ENDLESS, centralised, committed, digests, settings, start, works
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.e2e

SETTINGS = (ENDLESS, "learners=3", "code.name=uncoded", "compute.emulate_unit_s=0.1")
HERE, THERE = "127.0.0.2", "127.0.0.3"


class Names:
    """Name resolution for processes that are started through ``within``.

    Args:
        path: File of the table of names.

    Attributes:
        within: Prefix of a command that resolves names by the table.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._addresses = path, {"controller": HERE, "replay": HERE}
        path.write_text(self._table())
        script = f'mount --bind {path} /etc/hosts && exec "$@"'
        self.within = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]

    def _table(self) -> str:
        return "".join(f"{address} {name}.test\n" for name, address in self._addresses.items())

    def move(self, name: str) -> None:
        """Point a name to the other address, also for running processes."""
        self._addresses[name] = THERE
        with self._path.open("r+") as file:  # the very file that is mounted, of the same length
            file.write(self._table())


def reached(run_dir: Path, goal: int) -> bool:
    return committed(run_dir) >= goal


@pytest.fixture
def names(tmp_path: Path) -> Names:
    names = Names(tmp_path / "hosts")
    if not works(*names.within, "true"):
        pytest.skip("needs the right to mount /etc/hosts for some processes alone (unshare)")
    return names


class Run:
    """Services that reach one another by name."""

    def __init__(self, run_dir: Path, names: Names) -> None:
        run_dir.mkdir()
        self._run_dir, self._names = run_dir, names
        self._ports = {name: free_address().rpartition(":")[2] for name in ("controller", "replay")}
        self._dialled = [f"{name}.address={name}.test:{port}" for name, port in self._ports.items()]

    def serve(self, name: str, host: str, *words: str) -> "subprocess.Popen[str]":
        """Start a service on ``host``."""
        listens = [f"{name}.listen={host}:{self._ports[name]}"] if name in self._ports else []
        options = settings(*SETTINGS, *self._dialled, *listens)
        with (self._run_dir / f"{name}.log").open("a") as log:
            words = ("serve", name, "--run-dir", str(self._run_dir), *options, *words)
            return start(*words, output=log, within=self._names.within)


def test_a_service_that_moves_is_found_by_those_who_know_its_name(
    run_dir: Path, names: Names
) -> None:
    run = Run(run_dir, names)
    running = {name: run.serve(name, HERE) for name in ("controller", "replay")}
    running["learner"] = run.serve("learner", HERE, "--replicas", "3")
    wait_until(lambda: committed(run_dir) > 1, what="two iterations are committed")
    for moved in ("controller", "replay"):
        running[moved].send_signal(signal.SIGTERM)
        assert running[moved].wait(WAIT_S) == 0
        goal = committed(run_dir) + 4
        names.move(moved)
        running[moved] = run.serve(moved, THERE)
        wait_until(partial(reached, run_dir, goal), what="the run goes on")
        assert [service.poll() for service in running.values()] == [None] * 3
    found = digests(run_dir)
    assert found == centralised(run_dir, iterations=len(found))
