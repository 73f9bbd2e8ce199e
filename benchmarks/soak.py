"""Claim: over 1,000 iterations with 15 learners no service grows in memory, descriptors or threads.

Every process of a local run is sampled while it trains: its proportional set size, which counts
shared pages once, its descriptors and its threads. After the first fifth, memory must grow by less
than 1 MiB in a hundred iterations, and the numbers of descriptors and threads must end where they
began.

    python benchmarks/soak.py --iterations 1000 --learners 15
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

LOOKS = 50
WARM_UP = 0.2
GROWTH_BYTES = 2**20
"""Allowed growth in a hundred iterations, bytes."""
SETTINGS = (
    "collect.warmup=2048",
    "replay.capacity=20000",
    "algorithm.hidden=32",
    "algorithm.batch_size=128",
    "checkpoint.every=100",
    "metrics.sinks=[]",
    "code.tolerance=2",
    "stragglers.name=fixed_k",
    "stragglers.k=2",
    "stragglers.delay_s=0.01",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Measurements of a process after some iterations."""

    iteration: int
    pss_bytes: int
    descriptors: int
    threads: int


def services(run_dir: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Processes of the run's services, one per learner."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if "serve" in words and str(run_dir) in words:
                yield f"{words[words.index('serve') + 1]} {process.pid}", process


def committed(run_dir: Path) -> int:
    """Number of iterations in the metrics file."""
    metrics = run_dir / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def watch(run_dir: Path, training: "subprocess.Popen[bytes]", every: int) -> dict[str, list[Look]]:
    """Sample each process until the run ends."""
    looks, due = defaultdict[str, list[Look]](list), every
    while training.poll() is None:
        time.sleep(0.05)
        iteration = committed(run_dir)
        if iteration < due:
            continue
        due = iteration + every
        for name, process in services(run_dir):
            with suppress(psutil.Error):
                look = Look(
                    iteration=iteration,
                    pss_bytes=process.memory_full_info().pss,
                    descriptors=process.num_fds(),
                    threads=process.num_threads(),
                )
                looks[name].append(look)
    return looks


def judged(name: str, looks: list[Look], iterations: int) -> bool:
    """Print a service's row; return whether it did not grow."""
    steady = [look for look in looks if look.iteration >= WARM_UP * iterations]
    places = [look.iteration for look in steady]
    slope = 100 * float(np.polyfit(places, [look.pss_bytes for look in steady], 1)[0])
    descriptors = [look.descriptors for look in steady]
    threads = [look.threads for look in steady]
    same = descriptors[0] == descriptors[-1] and threads[0] == threads[-1]
    print(
        f"| {name.split()[0]} | {steady[-1].pss_bytes / 2**20:.1f} | {slope / 2**20:+.3f} | "
        f"{min(descriptors)}..{max(descriptors)} | {min(threads)}..{max(threads)} |"
    )
    return slope < GROWTH_BYTES and same


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--learners", type=int, default=15)
    arguments = parser.parse_args()
    options = [f"iterations={arguments.iterations}", f"learners={arguments.learners}", *SETTINGS]
    words = [word for option in options for word in ("--set", option)]
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch) / "run"
        command = [sys.executable, "-m", "fullrank", "train", "--run-dir", str(run_dir), *words]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as training:
            looks = watch(run_dir, training, max(1, arguments.iterations // LOOKS))
    print("| service | PSS, MiB | growth in 100 iterations, MiB | descriptors | threads |")
    print("|---|---|---|---|---|")
    holds = [judged(name, samples, arguments.iterations) for name, samples in sorted(looks.items())]
    finished = training.returncode == 0 and len(holds) >= arguments.learners + 2
    print("\nnothing grows" if finished and all(holds) else "\nsomething grows, or the run failed")
    return not (finished and all(holds))


if __name__ == "__main__":
    sys.exit(main())
