"""Injection of a fault into the services of a run."""

import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from tests.faultlab import liars
from tests.faultlab.fault_proxy import FaultProxy
from tests.faultlab.history import read_history
from tests.faultlab.service_cluster import ServiceCluster, await_that
from tests.faultlab.service_runs import ANYWHERE, LEARNERS
from tests.faultlab.service_schedule import (
    CORRUPTED,
    DUPLICATED,
    LOST,
    LYING,
    NETWORK_FAULTS,
    OUTNUMBERED,
    RESUMED,
    SIGNALS,
    DrawnFault,
)

from fullrank.cli.processes import stop
from fullrank.common.errors import FullrankError, RunDirectoryInUse
from fullrank.config.faults import CorruptFault
from fullrank.host.run_directory import resolve
from fullrank.net.straggler import set_injection
from fullrank.runs.events import Event, Sent, Welcomed

REFUSAL_S = 120.0
"""Longest start of a second process on a slow machine, after which it counts as not refused."""
DEAD = psutil.STATUS_ZOMBIE


def inject(cluster: ServiceCluster, fault: DrawnFault, draws: np.random.Generator) -> None:
    """Inject one fault and wait for its end.

    Raises:
        FullrankError: It is not borne.
    """
    name, kind, duration_s = fault.service, fault.kind, fault.duration_s
    if kind in NETWORK_FAULTS:
        cluster.lines[name](NETWORK_FAULTS[kind])
        time.sleep(duration_s)
        cluster.lines[name](FaultProxy.heal)
    elif kind == DUPLICATED:
        _start_second(cluster, name)
    elif kind == RESUMED:
        _resume(cluster)
    elif kind == LOST:
        cluster.fail_over()
    elif kind == CORRUPTED:
        learner, byte = (int(draws.integers(high)) for high in (LEARNERS, 2**20))
        _corrupt(cluster, CorruptFault(learners=(learner,), byte=byte))
        time.sleep(duration_s)
        _corrupt(cluster)
    elif kind == OUTNUMBERED:
        _outnumber(cluster, duration_s, draws)
    elif kind == LYING:
        _lie(cluster, duration_s, draws)
    else:
        _signal(cluster, name, kind, duration_s, draws)


def _start_second(cluster: ServiceCluster, name: str) -> None:
    """Start a second service on the directory of the first.

    Raises:
        FullrankError: It is not refused by name.
    """
    cluster.await_holder(name)
    second = cluster.start(name)
    try:
        second.process.wait(REFUSAL_S)
        failure = second.failure()
    except subprocess.TimeoutExpired:
        failure = None
    stop([second])
    if not isinstance(failure, RunDirectoryInUse):
        raise FullrankError(f"once: a second {name} was not refused by name, but: {failure}")


def _resume(cluster: ServiceCluster) -> None:
    """Resume the run beside its controller.

    Raises:
        FullrankError: It is not refused by name.
    """
    cluster.await_holder("controller")
    command = [
        sys.executable,
        "-P",
        "-m",
        "fullrank",
        "run",
        "resume",
        "--attach",
        str(cluster.machine.directory),
    ]
    try:
        run = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=REFUSAL_S
        )
    except subprocess.TimeoutExpired:
        raise FullrankError("once: a run was resumed beside its controller") from None
    if run.returncode != RunDirectoryInUse.exit_code or "is held by another" not in run.stderr:
        raise FullrankError(f"once: resuming it was not refused by name, but: {run.stderr}")


def _corrupt(cluster: ServiceCluster, *faults: CorruptFault) -> None:
    set_injection(resolve(ANYWHERE, cluster.run_dir, "straggler-control"), faults=faults)


def _outnumber(cluster: ServiceCluster, duration_s: float, draws: np.random.Generator) -> None:
    """Attach one sybil more than there are learners, and kill a learner.

    Raises:
        FullrankError: A sybil was dealt a row.
    """
    directory = Path(tempfile.mkdtemp(prefix="sybils", dir=cluster.run_dir))
    words = ("--replicas", str(LEARNERS + 1), "--run-dir", str(directory))
    sybils = cluster.start("learner", *words, program=(liars.__file__, "sybil"))
    attached = partial(_count, directory, Welcomed)
    await_that(lambda: attached() > LEARNERS or cluster.finished, "sybils")
    _some_learner(cluster, draws).kill()
    time.sleep(duration_s)
    cluster.learners.append(cluster.start_learner())
    stop([sybils])
    if _count(directory, Sent):
        raise FullrankError("clean: a sybil was dealt a row")


def _count(directory: Path, kind: type[Event]) -> int:
    """Number of events of a kind in the logs of the learners of a directory."""
    logs = read_history(directory).learners.values()
    return sum(isinstance(event, kind) for log in logs for event in log)


def _lie(cluster: ServiceCluster, duration_s: float, draws: np.random.Generator) -> None:
    """Kill a learner; another one that takes its place lies until it is stopped."""
    liar = cluster.start_learner(liars.__file__, "liar")
    _some_learner(cluster, draws).kill()
    await_that(lambda: "learner_ready" in liar.log.read_text() or cluster.finished, "a liar")
    time.sleep(duration_s)
    stop([liar])
    cluster.learners.append(cluster.start_learner())


def _signal(
    cluster: ServiceCluster, name: str, kind: str, duration_s: float, draws: np.random.Generator
) -> None:
    service = cluster.singletons.get(name)
    if name == "collector":
        process = _some_collector(cluster, draws)
    else:
        process = psutil.Process(service.process.pid) if service else _some_learner(cluster, draws)
    process.send_signal(SIGNALS[kind])
    time.sleep(duration_s)
    if kind == "frozen":
        process.send_signal(signal.SIGCONT)
    elif service:
        cluster.restart(name)
    elif name == "learner":
        cluster.learners.append(cluster.start_learner())
    elif kind == "stopped":  # one that is killed is started again by its parent
        cluster.collectors.append(cluster.start("collector"))


def _some_learner(cluster: ServiceCluster, draws: np.random.Generator) -> psutil.Process:
    stop([service for service in cluster.learners if service.process.poll() is not None])
    cluster.learners = [item for item in cluster.learners if item.process.poll() is None]
    parents = [psutil.Process(service.process.pid) for service in cluster.learners]
    replicas = [child for parent in parents for child in parent.children() or [parent]]
    alive = [process for process in replicas if process.status() != DEAD]
    return alive[int(draws.integers(len(alive)))]


def _some_collector(cluster: ServiceCluster, draws: np.random.Generator) -> psutil.Process:
    parents = [
        collector.process for collector in cluster.collectors if collector.process.poll() is None
    ]
    replicas = [child for parent in parents for child in psutil.Process(parent.pid).children()]
    alive = [process for process in replicas if process.status() != DEAD]
    if not alive:  # their parent lets some time pass before it starts them again
        cluster.collectors.append(cluster.start("collector"))
        alive = [psutil.Process(cluster.collectors[-1].process.pid)]
    return alive[int(draws.integers(len(alive)))]
