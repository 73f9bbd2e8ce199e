"""Claim: ten thousand simulated runs, each with its own faults, break no promise.

Every schedule is a run of the controller's own code in virtual time; its seed draws crashes, a
second controller, partitions, late, duplicated, swapped and flipped messages, and lying and dying
learners. It must end with the digests and parameters of the fault-free run and keep every
invariant; the first that does not is printed with its seed and ends the program.

    python benchmarks/schedules.py --schedules 10000

``--services`` injects faults into real processes and connections instead, half a minute each.
"""

import argparse
import sys

from fullrank.common.errors import InvariantBroken
from fullrank_faultlab.cli import chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--services", action="store_true")
    arguments = parser.parse_args()
    try:
        chaos(
            arguments.schedules,
            arguments.seed,
            arguments.processes,
            services=arguments.services,
        )
    except InvariantBroken as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
