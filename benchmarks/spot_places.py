"""Places in which learners are killed and started as machines go and come."""

import time
from pathlib import Path
from typing import Protocol

from tests.e2e.images import checkout, engine
from tests.e2e.stack import TINY, Stack
from tests.faultlab.service_runs import SETTINGS
from tests.faultlab.simulation.fleet import HEDGED

from fullrank.cli.processes import Service, start, stop
from fullrank.config import RunConfig, load
from fullrank.config.toml import to_toml
from fullrank.runs.record import METRICS, follow


class Place(Protocol):
    """A run with one learner a machine; ``config`` is its configuration."""

    config: RunConfig

    def begin(self, machine: int) -> None:
        """Start a learner."""

    def lose(self, machine: int) -> None:
        """Kill a learner."""

    def digests(self) -> list[str]:
        """Return the update digests of the committed iterations.

        Raises:
            FullrankError: A service ended by itself.
        """

    def end(self) -> None:
        """End all of it."""


class Host:
    """Replay, controller and learners as processes of this host.

    Args:
        run_dir: An empty directory.
        machines: Number of learners, all of which begin.
        iterations: Iterations of the run.
        unit_s: Emulated time of a unit.
    """

    def __init__(self, run_dir: Path, machines: int, *, iterations: int, unit_s: float) -> None:
        settings = [each for each in SETTINGS if not each.startswith("code.")]
        own = (f"iterations={iterations}", f"learners={machines}")
        overrides = [*settings, *own, *HEDGED, f"compute.emulate_unit_s={unit_s}"]
        self.config = load(None, environ={}, overrides=overrides).check().config
        self._run_dir = run_dir
        (run_dir / "config.toml").write_text(to_toml(self.config))
        (run_dir / "logs").mkdir()
        self._services = [start(name, run_dir) for name in ("replay", "controller")]
        self._learners: dict[int, Service] = {}
        self._started, self._records, self._digests = 0, follow(run_dir / METRICS), list[str]()
        for machine in range(machines):
            self.begin(machine)

    def begin(self, machine: int) -> None:
        self._started += 1
        log_name = f"learner-{self._started}"
        self._learners[machine] = start("learner", self._run_dir, log_name=log_name)

    def lose(self, machine: int) -> None:
        lost = self._learners.pop(machine)
        lost.process.kill()
        stop([lost])

    def digests(self) -> list[str]:
        self._digests += [record.update_digest for record in next(self._records)]
        if len(self._digests) < self.config.iterations:
            for service in (*self._services, *self._learners.values()):
                if (failure := service.failure()) is not None:
                    raise failure
        return self._digests

    def end(self) -> None:
        stop([*self._services, *self._learners.values()])


class Containers:
    """The containers of deploy/docker-compose.yml, whose images have been built.

    Args:
        scratch: An empty directory.
        machines: Number of learners, all of which begin.
        iterations: Iterations of the run.
        unit_s: Emulated time of a unit.
    """

    def __init__(self, scratch: Path, machines: int, *, iterations: int, unit_s: float) -> None:
        copy, variables = checkout(scratch), {"FULLRANK_LEARNERS": str(machines)}
        tables = f'[code]\nname = "uncoded"\n[compute]\nemulate_unit_s = {unit_s}\n{TINY}'
        copy.configure(tables, iterations=iterations)
        file = copy.deploy / "config/run.toml"
        hedged = '[controller]\nundecodable = "hedge"\n'
        file.write_text(file.read_text().replace("[controller]\n", hedged))
        environ = {"FULLRANK__LEARNERS": str(machines)}
        self.config = load(file, environ=environ).check().config
        self._stack = Stack(checkout=copy, engine=engine(), variables=variables)
        self._stack.compose("up", "--detach", "--scale", f"learner={machines}")
        self._learners = sorted(str(each.name) for each in self._stack.containers("learner"))

    def begin(self, machine: int) -> None:
        self._stack.engine.containers.get(self._learners[machine]).start()

    def lose(self, machine: int) -> None:
        self._stack.engine.containers.get(self._learners[machine]).kill()

    def digests(self) -> list[str]:
        time.sleep(0.5)  # each look is a command in a container
        return [record.update_digest for record in self._stack.records()]

    def end(self) -> None:
        self._stack.compose("down", "--volumes", "--timeout", "10")
