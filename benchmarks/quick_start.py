"""Claim: ``fullrank train`` commits within 10 s, and takes at most 6 GiB with 15 learners.

Memory is the proportional set size of all processes of the run. The replay table (1e6 transitions
of 8 agents) counts as if it were full: its unwritten pages are added.

    python benchmarks/quick_start.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

AGENTS, LEARNERS, CAPACITY = 8, 15, 1_000_000
START_CLAIM_S, MEMORY_CLAIM_BYTES = 10.0, 6 * 2**30
WITHIN_S = 120.0


def proportional_bytes(root: psutil.Process) -> int:
    """Proportional set size of a process and all its descendants, bytes."""
    total = 0
    for process in (root, *root.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        command = [sys.executable, "-m", "fullrank", "train", "--run-dir", str(run)]
        command += ["--agents", str(AGENTS), "--learners", str(LEARNERS)]
        command += ["--set", "code.tolerance=2", "--set", f"replay.capacity={CAPACITY}"]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            metrics = run / "metrics.jsonl"
            first_s = 0.0
            while time.perf_counter() - started < WITHIN_S:
                committed = metrics.read_text().count("\n") if metrics.exists() else 0
                if committed and not first_s:
                    first_s = time.perf_counter() - started
                if committed >= 20:
                    break
                time.sleep(0.02)
            table = run / "replay" / "transitions.table"
            unwritten = table.stat().st_size - 512 * table.stat().st_blocks
            memory = proportional_bytes(psutil.Process(process.pid)) + unwritten
        finally:
            services = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            process.wait()
            psutil.wait_procs(services, timeout=WITHIN_S)  # they stop when their parent ends
    print(f"| {LEARNERS} learners, {AGENTS} agents | measured | claim |")
    print("|---|---|---|")
    print(f"| start to first commit, s | {first_s:.1f} | {START_CLAIM_S:.0f} |")
    held, allowed = memory / 2**30, MEMORY_CLAIM_BYTES / 2**30
    print(f"| memory (PSS, full table), GiB | {held:.2f} | {allowed:.0f} |")
    return int(not 0.0 < first_s <= START_CLAIM_S or memory > MEMORY_CLAIM_BYTES)


if __name__ == "__main__":
    sys.exit(main())
