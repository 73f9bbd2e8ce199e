"""A run ends, finished or failed, and with it every service that was to serve until then."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.addresses import free_address
from tests.e2e.commands import fullrank, settings
from tests.e2e.forked import Forked, Forks
from tests.e2e.test_bad_input import ENVIRONMENT
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

PEERS = ("replay", "learner", "learner")


class Services:
    """Services of one run, each with the option ``--until-finished`` and a log of its own."""

    def __init__(self, forks: Forks, run_dir: Path, *overrides: str) -> None:
        addresses = [f"{name}.address={free_address()}" for name in ("controller", "replay")]
        # the end is told for longer than a learner that dials takes to hear it
        timing = ("controller.heartbeat_s=0.2", "controller.lost_after_s=10.0")
        self._settings = settings(
            "learners=2", "code.name=uncoded", *timing, *addresses, *overrides
        )
        self._forks, self._run_dir = forks, run_dir
        run_dir.mkdir(parents=True)
        (run_dir.parent / "flawed.py").write_text(ENVIRONMENT)

    def start(self, name: str, number: int = 0) -> Forked:
        words = [*self._settings, "--run-dir", str(self._run_dir), "--until-finished"]
        path = os.pathsep.join([str(self._run_dir.parent), os.environ.get("PYTHONPATH", "")])
        log = self._log(name, number)
        log.unlink(missing_ok=True)
        return self._forks.start(name, *words, log=log, env={"PYTHONPATH": path})

    def begin(self) -> list[Forked]:
        """Start all, the controller once the learners dial."""
        peers = [self.start(name, number) for number, name in enumerate(PEERS)]
        wait_until(
            lambda: all("dialling_again" in self.log("learner", number) for number in (1, 2)),
            what="learners dial",
        )
        return [*peers, self.start("controller")]

    def ended(self, processes: Sequence[Forked]) -> list[int]:
        """The exit codes of all."""
        return [process.wait() for process in processes]

    def log(self, name: str, number: int = 0) -> str:
        return self._log(name, number).read_text()

    def logs(self) -> list[str]:
        return [self.log("controller"), self.log("learner", 1), self.log("learner", 2)]

    def ending(self) -> dict[str, Any]:
        ending: dict[str, Any] = json.loads((self._run_dir / "run.json").read_text())["ending"]
        return ending

    def _log(self, name: str, number: int) -> Path:
        return self._run_dir.parent / f"{name}-{number}.log"


def test_every_service_of_a_failed_run_ends_with_its_code_and_once_started_again_with_0(
    run_dir: Path,
) -> None:
    chosen = ("environment.name=flawed:Flawed", "environment.copies=1", "collect.warmup=32")
    with Forks() as forks:
        services = Services(forks, run_dir, "iterations=8", *chosen)
        assert services.ended(services.begin()) == [0, 3, 3, 3], services.logs()
        ending = services.ending()
        assert (ending["state"], ending["exit_code"], ending["committed"]) == ("failed", 3, 2)
        assert "the physics exploded" in ending["reason"]
        assert services.ended(services.begin()) == [0, 0, 0, 0], services.logs()
        assert all("the physics exploded" in log for log in services.logs())
        assert services.ending() == ending
    shown = fullrank("run", "status", str(run_dir))
    assert (shown.code, shown.error) == (0, "")
    assert "failed, 2 of 8 iterations" in shown.output
    assert "the physics exploded" in shown.output
    assert "(exit code 3)" in shown.output
