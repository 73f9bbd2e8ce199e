"""Claim: neither 39 writers nor a sampler that never rests wait for each other at replay.

The manager of several queues in CMARL takes what actors have sent as one batch between the draws of
a learner. Here replay serves 39 writers, which are emulated: each sleeps for the steps of an
episode of `3m` (10 ms a step, 40 steps) and then writes it, 27 kB; and a sampler that asks for the
next minibatch of 32 episodes as soon as it has one. The three run in processes of their own. A
writer is blocked while its window of 8 episodes is full; the sampler waits while a group is stored
at the moment at which it could gather. Exits with 1 if writers are blocked for 1 % of their time or
the sampler waits for 5 % of its own.

    OMP_NUM_THREADS=1 python benchmarks/multi_queue.py
"""

import argparse
import sys
from collections.abc import Sequence

from fullrank_reproduction.cmarl.multi_queue import (
    BLOCKED_CLAIM,
    WAITING_CLAIM,
    WRITERS,
    measure,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the measurement")
    found = measure(parser.parse_args(arguments).seconds)
    print("| who | did | waited, share of its time | claim |")
    print("|---|---|---|---|")
    print(
        f"| {WRITERS} writers | {found.episodes} episodes | {found.blocked:.3%} | "
        f"< {BLOCKED_CLAIM:.0%} |"
    )
    print(
        f"| sampler | {found.minibatches} minibatches | {found.waited:.2%} | "
        f"< {WAITING_CLAIM:.0%} |"
    )
    return int(not (found.blocked < BLOCKED_CLAIM and found.waited < WAITING_CLAIM))


if __name__ == "__main__":
    sys.exit(main())
