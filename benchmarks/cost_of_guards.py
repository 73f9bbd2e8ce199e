"""Claim: guards against learners that lie, and a mirror, cost at most a quarter of an iteration.

The default run (M = 3, N = 4) with services as processes on loopback, all on the processors of one
machine, in turn with each guard, and with a mirror in another directory. Two liars need a third
holder of each unit (``code.tolerance = 2``), whose own cost stands beside: each guard is compared
with the run of the same code.

    OMP_NUM_THREADS=1 python benchmarks/cost_of_guards.py
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from cost_of_trust import SETTINGS, measure_iterations
from local_services import train

CLAIM = 1.25
THRICE = ("code.tolerance=2",)
GUARDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "audit.every=1": ("audit.every=1",),
    "audit.byzantine=1": ("audit.byzantine=1",),
    "audit.spot=0.1": ("audit.spot=0.1",),
    "checkpoint.mirror": (),
    "code.tolerance=2": THRICE,
    "with audit.byzantine=2": (*THRICE, "audit.byzantine=2"),
}


def measured(rounds: int, guard: str) -> tuple[float, float]:
    """Median round and median iteration of a run, seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        times = Path(scratch) / "times"
        settings = [f"iterations={rounds}", *SETTINGS, *GUARDS[guard]]
        if guard == "checkpoint.mirror":
            settings.append(f"{guard}={scratch}/mirror")
        prepare = partial(measure_iterations, times)
        records, _ = train(Path(scratch) / "run", settings, prepare=prepare)
        iterations_s = list(map(float, times.read_text().split()))
    first = rounds // 10
    return median(record.round_s for record in records[first:]), median(iterations_s[first:])


def compare(rounds: int, turns: int) -> float:
    """Print the cost of each guard; return the largest ratio of iterations."""
    runs = [{guard: measured(rounds, guard) for guard in GUARDS} for _ in range(turns)]
    print("Median milliseconds, and the ratio to the run of the same code (least to largest):\n")
    print("| setting | round | ratio | iteration | ratio |\n|---|---|---|---|---|")
    largest = 0.0
    for guard, settings in GUARDS.items():
        base = "code.tolerance=2" if settings[:1] == THRICE and settings != THRICE else "default"
        cells = []
        for part in range(2):
            ratios = sorted(run[guard][part] / run[base][part] for run in runs)
            cells.append(f"{1e3 * median(run[guard][part] for run in runs):.1f}")
            cells.append(f"{median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
        print(f"| `{guard}` | {' | '.join(cells)} |")
        largest = max(largest, 0.0 if settings == THRICE else median(ratios))
    return largest


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    ratio = compare(arguments.rounds, arguments.turns)
    print(
        f"\nThe dearest guard makes an iteration {ratio:.3f} times as long (claimed {CLAIM} at "
        "most)."
    )
    return int(ratio > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
