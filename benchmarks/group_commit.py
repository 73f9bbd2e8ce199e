"""Claim: 16 episodes stored as a group take at most a quarter of the time of 16 stored one by one.

Episodes have 27 kB, as those of `3m` with 40 steps. They pass through the inbox of a table that
grows by arrival: a turn at the table, a thread, the checks, the rows with their checksums, and with
fsync the disk. Both ways take turns of 64 episodes over the same file; ratios of adjacent turns,
medians of all. Exits with 1 if the median ratio is below 4 with `replay.acknowledge = "fsync"` or
with `memory`.

    OMP_NUM_THREADS=1 python benchmarks/group_commit.py
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import median

import numpy as np

from fullrank_reproduction.cmarl.group_commit import CLAIM, ratios


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=25, help="turns of each way")
    options = parser.parse_args(arguments)
    holds = True
    print("| acknowledged | time one by one, in that of 16 at once (quartiles) |")
    print("|---|---|")
    for name, sync in (("memory", False), ("fsync", True)):
        found = ratios(sync=sync, turns=options.turns)
        low, high = np.quantile(found, (0.25, 0.75))
        print(f"| {name} | {median(found):.1f} ({low:.1f} to {high:.1f}) |")
        holds &= median(found) >= CLAIM
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
