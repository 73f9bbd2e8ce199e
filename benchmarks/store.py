"""Claim: a store that takes 100 ms for each write costs a run at most 5 % of its pace.

Runs by services with and without a store, by turns; the store is a directory each of whose writes
takes so much longer. The pace is the mean over the iterations after the first tenth, checkpoints
included; learners take 50 ms a unit, as on machines of their own.

    OMP_NUM_THREADS=1 python benchmarks/store.py
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from fullrank.runs import objects
from fullrank.runs.objects import DirectoryObjects
from local_services import train

CLAIM, WRITE_S = 1.05, 0.1
SETTINGS = ("collect.warmup=2560", "compute.emulate_unit_s=0.05", "code.tolerance=1")


def slow(count: Path) -> None:
    """In the controller: let each write to the store take longer, and count it."""

    class Slow(DirectoryObjects):
        def put(self, name: str, content: bytes) -> None:
            _wait(count)
            super().put(name, content)

        def create(self, name: str, content: bytes) -> bool:
            _wait(count)
            return super().create(name, content)

    objects.DirectoryObjects = Slow  # type: ignore[misc]


def _wait(count: Path) -> None:
    time.sleep(WRITE_S)
    with count.open("a") as file:
        file.write("|")


def measured(iterations: int, *, stored: bool) -> tuple[float, int]:
    """Mean duration of an iteration, seconds, and writes to the store."""
    with tempfile.TemporaryDirectory() as scratch:
        count = Path(scratch) / "writes"
        store = [f"store.url={scratch}/store"] * stored
        settings = [f"iterations={iterations}", *SETTINGS, *store]
        records, _ = train(Path(scratch) / "run", settings, prepare=partial(slow, count))
        writes = len(count.read_text()) if stored else 0
    taken = [record.iteration_s or 0.0 for record in records[iterations // 10 :]]
    return sum(taken) / len(taken), writes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--turns", type=int, default=5)
    chosen = parser.parse_args()
    ratios = []
    for _ in range(chosen.turns):
        disk_s, _ = measured(chosen.iterations, stored=False)
        store_s, writes = measured(chosen.iterations, stored=True)
        ratios.append(store_s / disk_s)
        print(
            f"* disk {1e3 * disk_s:.1f} ms, store {1e3 * store_s:.1f} ms an iteration, "
            f"{writes} writes in {chosen.iterations * store_s:.0f} s: {ratios[-1]:.3f}",
            flush=True,
        )
    found = sorted(ratios)
    print(
        f"\nA store that takes {1e3 * WRITE_S:.0f} ms a write makes an iteration "
        f"{median(found):.3f} times as long ({found[0]:.3f} to {found[-1]:.3f}; claimed {CLAIM} at "
        "most)."
    )
    return int(median(found) > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
