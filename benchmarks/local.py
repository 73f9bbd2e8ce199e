"""Claim: ``fullrank train --local`` takes at most half of the services' CPU, or a third.

A third holds for the default run; half for that of [Wang21], whose environments step one after the
other either way. Each runs in turn as ``fullrank train``, as
``fullrank train --local`` and as a bare ``LocalRun`` without files or ports. CPU is that of all
processes of a run, user and system, which other work on the machine changes least; wall time stands
beside it. The start is the time to the first line of ``metrics.jsonl``.

    OMP_NUM_THREADS=1 python benchmarks/local.py --iterations 100
"""

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from fullrank.config.layers import load
from fullrank.local import LocalRun
from local_services import cpu_s

TURNS, WARM = 3, 20
"""Repetitions, and iterations before the measured ones."""
FORMER = (
    *("environment.copies=4", "collect.steps=25"),
    *("algorithm.batch_size=1024", "algorithm.hidden=64", "algorithm.learning_rate=0.01"),
)
RUNS = {
    "default": ((), 1 / 3),
    "4 copies, 25 steps, B = 1024, width 64": (FORMER, 1 / 2),
}
"""Settings and largest claimed ratio by name."""


class Cost(NamedTuple):
    """Seconds of an iteration, and to the first commit."""

    wall_s: float
    cpu_s: float
    start_s: float = 0.0
    start_cpu_s: float = 0.0


def command(settings: Sequence[str], iterations: int, *, local: bool) -> Cost:
    """Cost of a run by the command line."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        words = [sys.executable, "-m", "fullrank", "train", "--run-dir", str(run)]
        words += ["--local"] * local + ["--iterations", str(10 * iterations)]
        words += [word for setting in settings for word in ("--set", setting)]
        started = time.perf_counter()
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        root = psutil.Process(process.pid)
        try:
            moments = []
            for committed in (1, WARM, WARM + iterations):
                while (count := lines(run / "metrics.jsonl")) < committed:
                    if process.poll() is not None:
                        raise SystemExit("the run ended early")
                    time.sleep(0.005)
                moments.append((time.perf_counter() - started, cpu_s(root), count))
        finally:
            services = root.children(recursive=True)
            process.terminate()
            process.wait()
            psutil.wait_procs(services, timeout=60)
    first, begin, end = moments
    measured = end[2] - begin[2]
    return Cost((end[0] - begin[0]) / measured, (end[1] - begin[1]) / measured, first[0], first[1])


def lines(path: Path) -> int:
    """Number of complete lines of a file, 0 without it."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def bare(settings: Sequence[str], iterations: int) -> Cost:
    """Cost of an iteration of ``LocalRun``, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_bare, (tuple(settings), iterations))


def _bare(settings: Sequence[str], iterations: int) -> Cost:
    config = load(overrides=[*settings, f"iterations={WARM + iterations}"]).check().config
    moments = [(time.perf_counter(), time.process_time()) for _ in LocalRun(config, coded=False)]
    (begin, begin_cpu), (end, end_cpu) = moments[WARM - 1], moments[-1]
    return Cost((end - begin) / iterations, (end_cpu - begin_cpu) / iterations)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=100)
    iterations = parser.parse_args().iterations
    print("| CPU ms an iteration (wall) | services | --local | bare | --local / services | claim |")
    print("|---|---|---|---|---|---|")
    holds, starts = True, []
    for name, (settings, claim) in RUNS.items():
        turns = [
            (
                command(settings, iterations, local=False),
                command(settings, iterations, local=True),
                bare(settings, iterations),
            )
            for _ in range(TURNS)
        ]
        ratio = median(local.cpu_s / services.cpu_s for services, local, _ in turns)
        cells = [
            f"{1e3 * median(cost.cpu_s for cost in column):.1f} "
            f"({1e3 * median(cost.wall_s for cost in column):.1f})"
            for column in zip(*turns, strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} | {claim:.2f} |", flush=True)
        holds &= ratio <= claim
        starts += [turn[:2] for turn in turns]
    print()
    print("| start to first commit | CPU, s | wall, s |")
    print("|---|---|---|")
    for name, column in zip(("services", "--local"), zip(*starts, strict=True), strict=True):
        cpu, wall = (
            median(getattr(cost, attribute) for cost in column)
            for attribute in ("start_cpu_s", "start_s")
        )
        print(f"| {name} | {cpu:.1f} | {wall:.1f} |")
    return int(not holds)


if __name__ == "__main__":
    raise SystemExit(main())
