"""Claim: ``fullrank train`` commits within 6 s, ``--local`` within 3 s; 15 learners take 4 GiB.

The first two are the default run, alone on two cores; beside the wall time stands the CPU time of
all processes up to the first commit, which other work on the machine changes less. The third has 8
agents and 15 learners. Memory is the proportional set size (PSS) of all its processes after 20
commits; the replay table (1e6 transitions of 8 agents) counts as if it were full: its unwritten
pages are added. A run before lets Python cache the bytecode of all modules, even where
``PYTHONDONTWRITEBYTECODE`` is set, since compiling it is part of the first start after an
installation alone.

    python benchmarks/quick_start.py
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from local_services import cpu_s

CAPACITY = 1_000_000
MEMORY_CLAIM_BYTES = 4 * 2**30
WITHIN_S = 120.0
UNCACHED = "PYTHONDONTWRITEBYTECODE"
LARGE = ["--agents", "8", "--learners", "15", "--set", "code.tolerance=2"]
STARTS: dict[str, tuple[list[str], float]] = {
    "default, --local": (["--local"], 3.0),
    "default, services": ([], 6.0),
    "8 agents, 15 learners": ([*LARGE, "--set", f"replay.capacity={CAPACITY}"], 10.0),
}
"""Options and largest claimed time to the first commit, seconds."""


@contextmanager
def training(run: Path, options: Sequence[str]) -> Iterator[psutil.Process]:
    """Run ``fullrank train`` within the block."""
    command = [sys.executable, "-m", "fullrank", "train", "--run-dir", str(run), *options]
    cached = {name: value for name, value in os.environ.items() if name != UNCACHED}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=cached)
    root = psutil.Process(process.pid)
    try:
        yield root
    finally:
        services = root.children(recursive=True)
        process.terminate()
        process.wait()
        psutil.wait_procs(services, timeout=WITHIN_S)  # they stop when their parent ends


def all_of(root: psutil.Process) -> list[psutil.Process]:
    """Return a process and its descendants."""
    return [root, *root.children(recursive=True)]


def proportional_bytes(root: psutil.Process) -> int:
    """Proportional set size of a process and its descendants, bytes."""
    total = 0
    for process in all_of(root):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


def wait_for(committed: int, run: Path) -> None:
    """Return once that many iterations are committed, or end after ``WITHIN_S``."""
    metrics, started = run / "metrics.jsonl", time.perf_counter()
    while time.perf_counter() - started < WITHIN_S:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= committed:
            return
        time.sleep(0.01)
    raise SystemExit(f"{committed} iterations took more than {WITHIN_S:.0f} s")


def main() -> int:
    holds = True
    for options in ([], ["--local"]):
        with tempfile.TemporaryDirectory() as scratch, training(Path(scratch) / "run", options):
            wait_for(1, Path(scratch) / "run")
    print("| start to first commit | wall, s | CPU, s | claim, s |")
    print("|---|---|---|---|")
    for name, (options, claim_s) in STARTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            run = Path(scratch) / "run"
            started = time.perf_counter()
            with training(run, options) as root:
                wait_for(1, run)
                first_s, used_s = time.perf_counter() - started, cpu_s(root)
                print(f"| {name} | {first_s:.1f} | {used_s:.1f} | {claim_s:.0f} |", flush=True)
                wait_for(20, run)
                held = proportional_bytes(root)
                (table,) = (run / "replay").glob("*/transitions.table")
                unwritten = table.stat().st_size - 512 * table.stat().st_blocks
        holds &= first_s <= claim_s
    memory = held + unwritten
    print("\n| memory of 15 learners | processes (PSS) | rest of the table | sum | claim |")
    print("|---|---|---|---|---|")
    cells = (held, unwritten, memory, MEMORY_CLAIM_BYTES)
    print(f"| GiB | {' | '.join(f'{cell / 2**30:.2f}' for cell in cells)} |")
    return int(not holds or memory > MEMORY_CLAIM_BYTES)


if __name__ == "__main__":
    sys.exit(main())
