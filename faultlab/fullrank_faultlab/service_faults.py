"""Fault injection into real services: processes die and freeze, connections fail.

Replay, controller, learners and, in two of three seeds, collectors are processes on this machine
that communicate through fault proxies and a straggler sidecar. Faults are injected one after the
other during training, and ended processes are restarted; finally the committed bits and the event
logs are checked.
"""

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import psutil

from fullrank.cli.processes import Service, start, stop
from fullrank.common.errors import FullrankError, RunDirectoryInUse
from fullrank.common.seeding import stream
from fullrank.config.faults import CorruptFault
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.rpc.addresses import resolve
from fullrank.rpc.straggler import set_injection
from fullrank.runs.event_history import read_history
from fullrank.runs.record import METRICS, follow
from fullrank_faultlab.fault_proxy import FaultProxy, NetworkFault, in_thread
from fullrank_faultlab.invariants import violations
from fullrank_faultlab.outcome import FaultOutcome
from fullrank_faultlab.service_runs import (
    ANYWHERE,
    LAG,
    LEARNERS,
    UNIT_S,
    Mode,
    configured,
    fault_free_run,
    free_run_violations,
)

ITERATIONS, FAULTS = 30, 4
SHORTEST_S, LONGEST_S = 0.2, 2.5
"""Range of a fault's duration: beyond a learner's heartbeat timeout, but below the time after which
a waiting service gives up."""
POLL_S = 0.05
"""Time between two polls of the metrics."""
STALLED_POLLS = 1800
"""Polls without a commit, about 90 s, after which a run has stalled. Polls are counted, since a
machine that sleeps delays them too."""
REFUSAL_S = 120.0
"""Longest start of a second service on a slow machine, after which it counts as not refused."""
DEAD = psutil.STATUS_ZOMBIE

SIGNALS: Mapping[str, signal.Signals] = MappingProxyType(
    {"killed": signal.SIGKILL, "stopped": signal.SIGTERM, "frozen": signal.SIGSTOP}
)
"""Faults of a process; an ended one is restarted, as a supervisor would."""
NETWORK_FAULTS: Mapping[str, NetworkFault] = MappingProxyType(
    {
        "connections cut": FaultProxy.cut,
        "connections silent": FaultProxy.hold,
        "connections silent towards it": lambda proxy: proxy.up.hold(),
        "connections silent from it": lambda proxy: proxy.down.hold(),
        "connections slow": lambda proxy: proxy.delay(0.05, jitter_s=0.02),
        "connections at a byte a second": lambda proxy: proxy.throttle(1.0),
    }
)
"""Faults of the connections to the controller or to replay."""
DUPLICATED = "a second one started"
"""Fault of the controller and of replay: another process on the same directory, to be refused."""
REFUSED = RunDirectoryInUse.exit_code
CRASHED = "ended by itself"
"""A service ended without a fault."""
CORRUPTED = "vectors corrupted"
"""Fault of a learner: one byte of every vector that it sends is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """An injected fault, or a service that ended by itself."""

    after: int
    """Iterations committed before."""
    service: str
    kind: str
    duration_s: float
    reason: str = ""
    """Reason of a service that ended by itself."""

    def __str__(self) -> str:
        event = self.reason or f"for {self.duration_s:.1f} s"
        separator = ": " if self.reason else " "
        return f"after {self.after:2} iterations: {self.service}: {self.kind}{separator}{event}"


def run_services(seed: int) -> FaultOutcome:
    """Train under the faults of one seed and check the run."""
    outcome = FaultOutcome(seed)
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch)
        mode = Mode.of(seed)
        try:
            for event in train_under_faults(run_dir, seed=seed, mode=mode):
                outcome.faults.append(str(event))
                outcome.violations += [str(event)] if event.kind == CRASHED else []
        except FullrankError as error:
            outcome.violations.append(str(error))
        if mode is Mode.FREE:
            outcome.violations += violations(read_history(run_dir))
            outcome.violations += free_run_violations(run_dir)
            return outcome
        reference = fault_free_run(ITERATIONS, mode=mode)
        outcome.violations += violations(
            read_history(run_dir),
            reference=reference.digests,
            lag=LAG if mode is Mode.KEYED else None,
        )
        outcome.violations += reference.differences(run_dir)
    return outcome


def train_under_faults(
    run_dir: Path,
    *,
    seed: int,
    mode: Mode = Mode.INLINE,
    iterations: int = ITERATIONS,
    faults: int = FAULTS,
    unit_s: float = UNIT_S,
) -> Generator[FaultEvent, None, None]:
    """Train to the end under faults; yields each fault after it, and services that crash.

    Args:
        run_dir: An empty directory.
        seed: Key of the faults and of the iterations in which they begin.
        mode: Who plays.
        iterations: Iterations of the run.
        faults: Number of faults, one after the other.
        unit_s: Seconds that a unit takes: faults take theirs, while iterations are committed.

    Raises:
        FullrankError: The run has stalled, or the controller failed at its end.
    """
    draws = stream(seed, "disturbances")
    config = partial(configured, iterations, f"compute.emulate_unit_s={unit_s}", mode=mode)
    with _cluster(run_dir, config) as cluster:
        for iteration in sorted(draws.integers(1, iterations - 1, faults).tolist()):
            yield from cluster.train_until(iteration)
            yield cluster.inject(draws)
        yield from cluster.train_until(iterations)
        cluster.stop_controller()


@contextmanager
def _cluster(run_dir: Path, configure: Callable[..., RunConfig]) -> Iterator["ServiceCluster"]:
    """The started services of a run, stopped on exit."""
    with ExitStack() as stack:
        proxies = {
            name: FaultProxy(partial(resolve, ANYWHERE, run_dir, behind))
            for name, behind in (("controller", "straggler"), ("replay", "replay"))
        }
        lines = {name: stack.enter_context(in_thread(proxy)) for name, proxy in proxies.items()}
        addresses = [f"{name}.address={proxy.address}" for name, proxy in proxies.items()]
        config = configure(*addresses)
        (run_dir / "config.toml").write_text(to_toml(config))
        (run_dir / "logs").mkdir()
        cluster = ServiceCluster(run_dir, lines, collectors=config.collectors.count)
        stack.callback(cluster.cleanup)
        yield cluster


class ServiceCluster:
    """The processes of one run and the connections between them.

    Args:
        run_dir: Directory of the run.
        lines: Applies a fault to the connections to a service, by its name.
        collectors: Number of collectors.
    """

    def __init__(
        self,
        run_dir: Path,
        lines: Mapping[str, Callable[[NetworkFault], None]],
        *,
        collectors: int = 0,
    ) -> None:
        self._run_dir, self._lines = run_dir, lines
        self._records, self._committed = follow(run_dir / METRICS), 0
        self._started = 0
        self._singletons = {
            name: self._start(name) for name in ("controller", "replay", "straggler")
        }
        self._learners = [self._start("learner", "--replicas", str(LEARNERS))]
        self._collectors = (
            [self._start("collector", "--replicas", str(collectors))] if collectors else []
        )

    def _start(self, name: str, *extra: str) -> Service:
        self._started += 1
        if name == "straggler":
            extra = ("--set", f"controller.address={ANYWHERE}")
        return start(name, self._run_dir, extra, log_name=f"{self._started}-{name}")

    def committed(self) -> int:
        """Number of committed iterations in the metrics."""
        for record in next(self._records):
            self._committed = record.iteration + 1
        return self._committed

    def train_until(self, iterations: int) -> Iterator[FaultEvent]:
        """Wait for so many committed iterations; restart and yield services that crash.

        Raises:
            FullrankError: The run has stalled.
        """
        before, polls = -1, 0
        while (now := self.committed()) < iterations:
            before, polls = now, polls + 1 if now == before else 0
            if polls > STALLED_POLLS:
                raise FullrankError(f"live: the run stalls after {now} committed iterations")
            for name, service in self._singletons.items():
                if (failure := service.failure()) is not None:
                    stop([service])
                    self._singletons[name] = self._start(name)
                    yield FaultEvent(
                        after=now, service=name, kind=CRASHED, duration_s=0.0, reason=str(failure)
                    )
            time.sleep(POLL_S)

    def inject(self, draws: np.random.Generator) -> FaultEvent:
        """Inject one fault and wait for its end."""
        after, duration_s = self.committed(), float(draws.uniform(SHORTEST_S, LONGEST_S))
        kinds = ["controller", "replay", "learner", *["collector"] * bool(self._collectors) * 3]
        name = str(draws.choice(kinds))
        others = [CORRUPTED] * (name == "learner")
        if name in self._lines:
            others = [*NETWORK_FAULTS, DUPLICATED]
        kind = str(draws.choice([*SIGNALS, *others]))
        if kind in NETWORK_FAULTS:
            self._lines[name](NETWORK_FAULTS[kind])
            time.sleep(duration_s)
            self._lines[name](FaultProxy.heal)
        elif kind == DUPLICATED:
            self._start_second(name)
        elif kind == CORRUPTED:
            learner, byte = (int(draws.integers(high)) for high in (LEARNERS, 2**20))
            self._corrupt(CorruptFault(learners=(learner,), byte=byte))
            time.sleep(duration_s)
            self._corrupt()
        else:
            self._signal(name, kind, duration_s, draws)
        return FaultEvent(after=after, service=name, kind=kind, duration_s=duration_s)

    def _start_second(self, name: str) -> None:
        """Start a second service on the directory of the first.

        Raises:
            FullrankError: It is not refused.
        """
        second = self._start(name)
        try:
            code = second.process.wait(REFUSAL_S)
        except subprocess.TimeoutExpired:
            code = 0
        stop([second])
        if code != REFUSED:
            raise FullrankError(f"once: a second {name} on the same directory was not refused")

    def _corrupt(self, *faults: CorruptFault) -> None:
        set_injection(resolve(ANYWHERE, self._run_dir, "straggler-control"), faults=faults)

    def _signal(self, name: str, kind: str, duration_s: float, draws: np.random.Generator) -> None:
        service = self._singletons.get(name)
        if name == "collector":
            process = self._some_collector(draws)
        else:
            process = psutil.Process(service.process.pid) if service else self._some_learner(draws)
        process.send_signal(SIGNALS[kind])
        time.sleep(duration_s)
        if kind == "frozen":
            process.send_signal(signal.SIGCONT)
        elif service:
            stop([service])
            self._singletons[name] = self._start(name)
        elif name == "learner":
            self._learners.append(self._start("learner"))
        elif kind == "stopped":  # one that is killed is started again by its parent
            self._collectors.append(self._start("collector"))

    def _some_learner(self, draws: np.random.Generator) -> psutil.Process:
        stop([service for service in self._learners if service.process.poll() is not None])
        self._learners = [item for item in self._learners if item.process.poll() is None]
        parents = [psutil.Process(service.process.pid) for service in self._learners]
        replicas = [child for parent in parents for child in parent.children() or [parent]]
        alive = [process for process in replicas if process.status() != DEAD]
        return alive[int(draws.integers(len(alive)))]

    def _some_collector(self, draws: np.random.Generator) -> psutil.Process:
        parents = [
            collector.process for collector in self._collectors if collector.process.poll() is None
        ]
        replicas = [child for parent in parents for child in psutil.Process(parent.pid).children()]
        alive = [process for process in replicas if process.status() != DEAD]
        if not alive:  # their parent lets some time pass before it starts them again
            self._collectors.append(self._start("collector"))
            alive = [psutil.Process(self._collectors[-1].process.pid)]
        return alive[int(draws.integers(len(alive)))]

    def stop_controller(self) -> None:
        """Stop the controller by SIGTERM, at which it writes a checkpoint.

        Raises:
            FullrankError: It failed.
        """
        controller = self._singletons["controller"]
        stop([controller])
        if controller.process.returncode:
            raise controller.failure() or FullrankError("the controller failed")

    def cleanup(self) -> None:
        """Stop all processes."""
        stop([*self._singletons.values(), *self._learners, *self._collectors])
