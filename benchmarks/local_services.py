"""Real services for the benchmarks: replay, controller and learners as processes on loopback."""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from fullrank.common.errors import ServiceLost
from fullrank.config import Resolved, load
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.record import IterationRecord, read_records

WITHIN_S = 600.0
"""Longest run of a benchmark, seconds."""


def nothing() -> None:
    """Leave the services as they are."""


def train(
    run_dir: Path,
    settings: Sequence[str],
    *,
    prepare: Callable[[], None] = nothing,
    sidecar: Sequence[str] | None = None,
) -> tuple[list[IterationRecord], float]:
    """Train with the given ``key=value`` settings.

    Args:
        run_dir: An empty directory.
        settings: As for ``--set``.
        prepare: Top-level function that each service process calls first, for example to register
            a benchmark's own algorithm.
        sidecar: Settings of a straggler sidecar that the learners dial; None for none.

    Returns:
        The committed iterations, and CPU seconds of all services together.
    """
    settings = [*settings, "metrics.sinks=[]"]
    resolved = load(overrides=settings)
    processes = []
    try:
        dialled = resolved
        if sidecar is not None:
            processes.append(start("straggler", load(overrides=sidecar), run_dir, prepare))
            address = announced(run_dir, "straggler")
            dialled = load(overrides=[*settings, f"controller.address={address}"])
        processes.append(start("learner", dialled, run_dir, prepare))
        processes += [start(name, resolved, run_dir, prepare) for name in ("controller", "replay")]
        _wait(run_dir, resolved, processes)
        spent_s = sum(cpu_s(psutil.Process(process.pid)) for process in processes)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return read_records(run_dir / "metrics.jsonl"), spent_s


def start(
    name: str,
    resolved: Resolved,
    run_dir: Path,
    prepare: Callable[[], None] = nothing,
) -> BaseProcess:
    """Start a service in its own process."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=serve, args=(name, resolved, run_dir, prepare))
    process.start()
    return process


def announced(run_dir: Path, name: str) -> str:
    """Address of a service, once it listens."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        with suppress(ServiceLost):
            return resolve("127.0.0.1:0", run_dir, name)
        time.sleep(0.05)
    raise SystemExit(f"the {name} did not come up")


def serve(name: str, resolved: Resolved, run_dir: Path, prepare: Callable[[], None]) -> None:
    """Run one service process."""
    os.environ["OMP_NUM_THREADS"] = "1"
    prepare()
    replicas = resolved.size().config.learners if name == "learner" else 1
    main = next(iter(entry_points(group="fullrank.services", name=name))).load()
    launch = Launch(resolved=resolved, run_dir=run_dir, replicas=replicas)
    raise SystemExit(main(launch))


def _wait(run_dir: Path, resolved: Resolved, processes: Sequence[BaseProcess]) -> None:
    deadline = time.monotonic() + WITHIN_S
    with StatusPoller(run_dir, resolved.config) as watch:
        while watch.status().state is not RunState.FINISHED:
            if time.monotonic() > deadline or not all(process.is_alive() for process in processes):
                raise SystemExit(f"the run in {run_dir} did not finish")
            time.sleep(0.1)


def cpu_s(root: psutil.Process) -> float:
    """CPU time of a process and its descendants so far, seconds."""
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total
