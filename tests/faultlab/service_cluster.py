"""The processes of one run on this machine, and the connections between them."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.faultlab.controller_machine import ControllerMachine
from tests.faultlab.fault_proxy import NetworkFault
from tests.faultlab.service_runs import LEARNERS

from fullrank.cli.processes import FULLRANK, Service, start, stop
from fullrank.common.errors import FullrankError
from fullrank.config.tree import RunConfig
from fullrank.host.run_directory import LOCK
from fullrank.runs.identity import IDENTITY
from fullrank.runs.record import METRICS, follow
from fullrank.runs.snapshot import REPLAY

POLL_S = 0.05
"""Time between two polls."""
STALLED_POLLS = 1800
"""Polls without a commit, about 90 s, after which a run has stalled. Polls are counted, since a
machine that sleeps delays them too."""
SINGLETONS = ("controller", "replay", "straggler")


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Poll until a condition holds.

    Raises:
        FullrankError: It does not.
    """
    for _ in range(STALLED_POLLS):
        if condition():
            return
        time.sleep(POLL_S)
    raise FullrankError(f"live: {what} was awaited in vain")


class ServiceCluster:
    """The processes of one run.

    Args:
        run_dir: Directory of the run.
        config: Its configuration.
        machine: Machine of the controller.
        upstream: Address at which the straggler sidecar finds the controller.
        lines: Applies a fault to the connections to a service, by its name.

    Attributes:
        singletons: Controller, replay and straggler sidecar.
        learners: Processes of learners, or parents of several.
        collectors: Parents of collectors.
    """

    def __init__(
        self,
        run_dir: Path,
        config: RunConfig,
        machine: ControllerMachine,
        *,
        upstream: str,
        lines: Mapping[str, Callable[[NetworkFault], None]],
    ) -> None:
        self.run_dir, self.machine, self.lines = run_dir, machine, lines
        self._upstream, self._iterations = upstream, config.iterations
        self._records, self._committed = follow(run_dir / METRICS), 0
        self._started: list[Service] = []
        self.singletons = {name: self.start(name) for name in SINGLETONS}
        self.learners = [self.start("learner", "--replicas", str(LEARNERS))]
        replicas = ("--replicas", str(config.collectors.count))
        self.collectors = [self.start("collector", *replicas)] if config.collectors.count else []

    def start(self, name: str, *extra: str, program: tuple[str, ...] = FULLRANK) -> Service:
        """Start a service, a controller in the directory of the present one."""
        if name == "straggler":
            extra = ("--set", f"controller.address={self._upstream}", *extra)
        elif name == "controller" and self.machine.directory != self.run_dir:
            extra = ("--run-dir", str(self.machine.directory), *extra)
        return start(name, self.run_dir, extra, log_name=f"{self._started}-{name}", program=program)

    def start_learner(self, *program: str) -> Service:
        """Start a single learner, which fails apart from all others."""
        domain = ("--set", f"learner.domain=host-{len(self._started)}")
        return self.start("learner", *domain, program=program or FULLRANK)

    def restart(self, name: str) -> None:
        """Start a singleton again, as a supervisor would."""
        stop([self.singletons[name]])
        self.singletons[name] = self.start(name)

    def committed(self) -> int:
        """Number of committed iterations in the metrics."""
        for record in next(self._records):
            self._committed = record.iteration + 1
        return self._committed

    @property
    def finished(self) -> bool:
        """True once every iteration is committed."""
        return self.committed() == self._iterations

    def train_until(self, iterations: int) -> Iterator[tuple[str, FullrankError]]:
        """Wait for so many committed iterations; restart singletons that end, and yield them.

        Raises:
            FullrankError: The run has stalled.
        """
        before, polls = -1, 0
        while (now := self.committed()) < iterations:
            before, polls = now, polls + 1 if now == before else 0
            if polls > STALLED_POLLS:
                raise FullrankError(f"live: the run stalls after {now} committed iterations")
            for name, service in self.singletons.items():
                if (failure := service.failure()) is not None:
                    self.restart(name)
                    yield name, failure
            time.sleep(POLL_S)

    def await_holder(self, name: str) -> None:
        """Wait until the controller or replay holds its directory, which it does once it is up.

        Raises:
            FullrankError: It does not.
        """
        directory = self.machine.directory if name == "controller" else self.run_dir / REPLAY
        file, holder = directory / LOCK, f"{self.singletons[name].process.pid}\n"
        await_that(
            lambda: file.exists() and file.read_text() == holder, f"{name}, to hold {directory}"
        )

    def fail_over(self) -> None:
        """Lose the controller's machine, and let another one go on with the run.

        Raises:
            FullrankError: It does not.
        """
        directory, lost = self.machine.another(), self.singletons["controller"]
        lost.process.kill()
        stop([lost])
        self.machine.lose(directory)
        self.singletons["controller"] = self.start("controller")
        self._records = follow(directory / METRICS)
        await_that((directory / IDENTITY).exists, "a run that goes on elsewhere")

    def finish(self) -> None:
        """Stop the controller by SIGTERM, at which it writes a checkpoint.

        Raises:
            FullrankError: It failed.
        """
        controller = self.singletons["controller"]
        stop([controller])
        if controller.process.returncode:
            raise controller.failure() or FullrankError("the controller failed")
        self.machine.gather()

    def cleanup(self) -> None:
        """Stop all processes, also those of a fault that was not borne."""
        stop(self._started)
