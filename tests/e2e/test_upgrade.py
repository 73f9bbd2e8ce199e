"""Two installed versions: a patch is rolled out while a run trains; a minor release is refused."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    digests,
    kill_all,
    records,
    settings,
    start,
)
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import WAIT_S, wait_until

from fullrank import __version__
from fullrank.runs.identity import series

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (Path("src"), *(path.relative_to(ROOT) for path in (ROOT / "services").iterdir()))


def install(folder: Path, version: str) -> str:
    """Copy the sources under another version; returns the path on which they are found."""
    for source in SOURCES:
        shutil.copytree(ROOT / source, folder / source)
    package = folder / "src" / "fullrank" / "__init__.py"
    package.write_text(package.read_text().replace(f'"{__version__}"', f'"{version}"'))
    return ":".join(str(folder / source) for source in SOURCES)


class Deployment:
    """The services of one run, each of which another version may replace."""

    def __init__(self, home: Path) -> None:
        addresses = [f"{name}.address={free_address()}" for name in ("controller", "replay")]
        self.run_dir, self._log = home / "run", home / "log"
        self.run_dir.mkdir()
        tuned = (ENDLESS, "learners=3", "code.name=uncoded")
        paced = ("compute.emulate_unit_s=0.3", "collect.steps=9")
        self._settings = settings(*tuned, *paced, *addresses)

    def serve(self, name: str, path: str) -> "subprocess.Popen[str]":
        options = [*self._settings, "--run-dir", str(self.run_dir)]
        with self._log.open("a") as log:
            return start("serve", name, *options, env={"PYTHONPATH": path}, output=log)

    def replace(self, name: str, old: "subprocess.Popen[str]", path: str) -> None:
        """Stop a service, start its successor, and wait until the run goes on."""
        old.send_signal(signal.SIGTERM)
        assert old.wait(WAIT_S) == 0
        before = committed(self.run_dir)
        self.serve(name, path)
        wait_until(partial(self._further, before), what=f"the run goes on with another {name}")

    def _further(self, before: int) -> bool:
        return committed(self.run_dir) > before

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    yield Deployment(tmp_path)
    kill_all(tmp_path)


def test_a_patch_is_rolled_out_service_by_service_and_no_iteration_is_lost(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Learners, then replay, then the controller, as docs/operate.md has it."""
    old, new = (install(tmp_path / patch, f"{series(__version__)}.{patch}") for patch in ("7", "8"))
    replay, controller = (deployment.serve(name, old) for name in ("replay", "controller"))
    learners = [deployment.serve("learner", old) for _ in range(3)]
    wait_until(lambda: committed(deployment.run_dir) > 1, what="it trains")
    for learner in learners:
        deployment.replace("learner", learner, new)
    deployment.replace("replay", replay, new)
    deployment.replace("controller", controller, new)
    kill_all(tmp_path)
    found = records(deployment.run_dir)
    assert [record.iteration for record in found] == list(range(len(found)))
    assert {record.term for record in found} == {1, 2}
    expected = centralised(deployment.run_dir, iterations=len(found))
    assert digests(deployment.run_dir) == expected
    assert violations(read_history(deployment.run_dir), reference=expected) == []
