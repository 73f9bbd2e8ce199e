"""Claim: a flooded run commits at least half as many iterations as without the flood.

All services of a run, on TCP ports of loopback, share one core, and a process that floods the
controller's port has another. For each flood, turns with and without it alternate. Compared are the
iterations that the run commits in a turn, and the controller's memory before the first flood and
after the last one has ended. A flood is one of

* rapid reset: calls that are opened and reset at once, over 4 connections;
* Hello streams: 1,500 streams of processes that would be learners, over 300 connections;
* half-open connections: 900 connections that say nothing;
* malformed frames and malformed messages, over 4 and 64 connections.

A run of ``fullrank train`` has no port, so that no flood of another user reaches it.

    python benchmarks/flooded_runs.py
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from attacks import ATTACKS, Counter, attack
from fullrank.config import load
from fullrank.runs.record import METRICS, read_records
from local_services import announced, start

LEAST = 0.5
"""Claimed share of the progress that is left."""
CONTEXT = multiprocessing.get_context("spawn")
LOOPBACK = [f"{name}.address=127.0.0.1:0" for name in ("controller", "monitor", "replay")]
SETTINGS = [
    *LOOPBACK,
    "iterations=100000000",
    "learners=4",
    "collect.warmup=128",
    "algorithm.batch_size=64",
    "algorithm.hidden=32",
    "metrics.sinks=[]",
]


@dataclass(slots=True, kw_only=True)
class Flooded:
    """Counts of one flood."""

    alone: list[int] = field(default_factory=list)
    """Iterations of each turn without it."""
    beside: list[int] = field(default_factory=list)
    """Iterations of each turn with it."""
    sent: int = 0
    """Calls, connections or writes of the flood."""
    before_mb: float = 0.0
    most_mb: float = 0.0
    after_mb: float = 0.0

    @property
    def share(self) -> float:
        """Progress beside the flood as a share of that without."""
        return sum(self.beside) / max(1, sum(self.alone))


def on_core(core: int) -> None:
    """Keep this process, and those that it starts, on one core."""
    os.sched_setaffinity(0, {core})


class Run:
    """A run whose services share a core.

    Args:
        run_dir: Its directory.
        services: Its processes, the controller first.
    """

    def __init__(self, run_dir: Path, services: list[BaseProcess]) -> None:
        self._metrics, self._services = run_dir / METRICS, services
        self.address = announced(run_dir, "controller")

    def committed(self) -> int:
        """Number of committed iterations."""
        return len(read_records(self._metrics)) if self._metrics.exists() else 0

    def progress(self, turn_s: float) -> int:
        """Iterations that are committed in a turn."""
        before = self.committed()
        time.sleep(turn_s)
        if not all(process.is_alive() for process in self._services):
            raise SystemExit("a service of the run has ended")
        return self.committed() - before

    def memory_mb(self) -> float:
        """Resident memory of the controller, MB."""
        return float(psutil.Process(self._services[0].pid).memory_info().rss / 1e6)


@contextmanager
def running(core: int) -> Iterator[Run]:
    """A run that commits iterations."""
    settings = load(overrides=SETTINGS)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        names = ("controller", "replay", "learner")
        services = [start(name, settings, place, partial(on_core, core)) for name in names]
        try:
            run = Run(place, services)
            while run.committed() < 20:
                run.progress(0.2)
            yield run
        finally:
            for process in services:
                process.terminate()
                process.join()


@contextmanager
def flooding(address: str, name: str, share: float, core: int) -> Iterator[Counter]:
    """Flood meanwhile, from the first call, connection or write on; they are counted."""
    sent = CONTEXT.Value("L", 0)
    process = CONTEXT.Process(target=attack, args=(address, name, share, core, sent), daemon=True)
    process.start()
    try:
        while not sent.value:
            time.sleep(0.05)
        yield sent
    finally:
        process.kill()
        process.join()


def measured(name: str, options: argparse.Namespace) -> Flooded:
    """Flood a run of its own in one way."""
    flooded, (mine, theirs) = Flooded(), options.cores
    with running(mine) as run:
        for turn in range(options.turns):
            flooded.alone.append(run.progress(options.seconds))
            flooded.before_mb = flooded.before_mb if turn else run.memory_mb()
            with flooding(run.address, name, options.share, theirs) as sent:
                before = sent.value
                flooded.beside.append(run.progress(options.seconds))
                flooded.sent += sent.value - before
                flooded.most_mb = max(flooded.most_mb, run.memory_mb())
            time.sleep(options.settle)
        flooded.after_mb = run.memory_mb()
    return flooded


def main() -> int:
    """Print a line for each flood; return 1 if the claim fails for one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3, help="with each flood, and without")
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of a turn")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds between two turns")
    parser.add_argument("--share", type=float, default=1.0, help="share of the connections")
    parser.add_argument("--floods", nargs="*", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--cores", type=int, nargs=2, default=(0, 1), help="the run's, the flood's")
    options = parser.parse_args()
    print(f"| flood | of it, 1/s | iterations/s without | with | ratio (>= {LEAST}) ", end="")
    print("| MB before | most | after |\n|---|---|---|---|---|---|---|---|")
    shares = []
    for name in options.floods:
        flooded, seconds = measured(name, options), options.turns * options.seconds
        shares.append(flooded.share)
        rates = [sum(each) / seconds for each in (flooded.alone, flooded.beside)]
        print(
            f"| {name} | {flooded.sent / seconds:.0f} | {rates[0]:.1f} | {rates[1]:.1f} "
            f"| {flooded.share:.2f} | {flooded.before_mb:.0f} | {flooded.most_mb:.0f} "
            f"| {flooded.after_mb:.0f} |",
            flush=True,
        )
    return int(min(shares, default=1.0) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
