"""Fault injection into real services: processes die, freeze and lie, connections fail.

Replay, controller, learners and, in two of three seeds, collectors are processes on this machine
that communicate through fault proxies and a straggler sidecar. Faults are injected one after the
other during training, and ended processes are restarted; finally the committed bits and the event
logs are checked.
"""

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faultlab.controller_machine import STORE, ControllerMachine
from tests.faultlab.fault_proxy import FaultProxy, in_thread
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.faultlab.outcome import FaultOutcome
from tests.faultlab.service_cluster import ServiceCluster
from tests.faultlab.service_injection import inject
from tests.faultlab.service_runs import (
    ANYWHERE,
    GUARD,
    LAG,
    UNIT_S,
    Mode,
    configured,
    fault_free_run,
    free_run_violations,
    is_guarded,
    is_stored,
)
from tests.faultlab.service_schedule import FAULTS, ITERATIONS, schedule_of

from fullrank.common.errors import FullrankError
from fullrank.common.seeding import stream
from fullrank.config.toml import to_toml
from fullrank.host.run_directory import resolve

CRASHED = "ended by itself"
"""A service ended without a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """An injected fault, or a service that ended by itself."""

    after: int
    """Iterations committed before."""
    service: str
    kind: str
    duration_s: float
    """Its length; 0 if it has none."""
    reason: str = ""
    """Reason of a service that ended by itself."""

    def __str__(self) -> str:
        lasting = f" for {self.duration_s:.1f} s" if self.duration_s else ""
        event = f": {self.reason}" if self.reason else lasting
        return f"after {self.after:2} iterations: {self.service}: {self.kind}{event}"


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
            read_history(run_dir, stored=is_stored(seed)),
            reference=reference.digests,
            lag=LAG if mode is Mode.KEYED else None,
            proved=is_guarded(seed),
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
    settings = [f"compute.emulate_unit_s={unit_s}", *GUARD * is_guarded(seed)]
    settings += [f"store.url={run_dir / STORE}"] * is_stored(seed)
    draws = stream(seed, "victims")
    with _cluster(run_dir, iterations, settings, mode) as cluster:
        for fault in schedule_of(seed, mode=mode, iterations=iterations, faults=faults):
            yield from _train_until(cluster, fault.iteration)
            after = cluster.committed()
            inject(cluster, fault, draws)
            yield FaultEvent(
                after=after, service=fault.service, kind=fault.kind, duration_s=fault.duration_s
            )
        yield from _train_until(cluster, iterations)
        cluster.finish()


def _train_until(cluster: ServiceCluster, iterations: int) -> Iterator[FaultEvent]:
    for name, failure in cluster.train_until(iterations):
        yield FaultEvent(
            after=cluster.committed(),
            service=name,
            kind=CRASHED,
            duration_s=0.0,
            reason=str(failure),
        )


@contextmanager
def _cluster(
    run_dir: Path, iterations: int, settings: Sequence[str], mode: Mode
) -> Iterator[ServiceCluster]:
    """The started services of a run, stopped on exit."""
    machine = ControllerMachine(run_dir)
    targets: Mapping[str, Callable[[], str]] = {
        "controller": partial(resolve, ANYWHERE, run_dir, "straggler"),
        "replay": partial(resolve, ANYWHERE, run_dir, "replay"),
        "machine": machine.address,
    }
    with ExitStack() as stack:
        proxies = {name: FaultProxy(target) for name, target in targets.items()}
        lines = {name: stack.enter_context(in_thread(proxy)) for name, proxy in proxies.items()}
        addresses = [f"{name}.address={proxies[name].address}" for name in ("controller", "replay")]
        config = configured(iterations, *settings, *addresses, mode=mode)
        (run_dir / "config.toml").write_text(to_toml(config))
        (run_dir / "logs").mkdir()
        upstream = proxies["machine"].address
        cluster = ServiceCluster(run_dir, config, machine, upstream=upstream, lines=lines)
        stack.callback(cluster.cleanup)
        yield cluster
