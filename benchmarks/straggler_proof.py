"""Claim: rounds with k tolerated stragglers last as long as rounds that skip these learners.

M = 8, N = 15, emulated compute of 0.05 s a unit, k keyed stragglers of 1 s in every iteration. For
each code the run with stragglers is compared with the run in which the same k learners get no
assignment: the median round must be within 1.10 of it and the delay must not show in the 95th
percentile. ``uncoded`` pays the full delay. A batch of 128 keeps the real compute within the
emulated one, so that two cores can stand for fifteen machines.

``--injector sidecar`` delays the vectors in a proxy before the controller instead of in the
learners. Either way the run with stragglers commits the digests of the run without.

    python benchmarks/straggler_proof.py --rounds 60
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from local_services import nothing, train
from passing_over import DELAY_S, LEARNERS, SEED, pass_over

AGENTS, UNIT_S = 8, 0.05
CLAIM = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Times and digests of one run."""

    median_s: float
    p95_s: float
    cpu_s: float
    digests: list[str]


def measure(
    code: list[str],
    k: int,
    rounds: int,
    prepare: Callable[[], None] = nothing,
    *,
    injector: str = "learner",
) -> Measured:
    """Train with real services; ``injector`` delays the stragglers."""
    stragglers = [
        "stragglers.name=fixed_k",
        f"stragglers.k={k}",
        f"stragglers.delay_s={DELAY_S}",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        records, cpu_s = train(
            Path(scratch) / "run",
            [
                f"seed={SEED}",
                f"iterations={rounds}",
                f"learners={LEARNERS}",
                f"environment.agents={AGENTS}",
                *code,
                *(stragglers if injector == "learner" else ()),
                f"compute.emulate_unit_s={UNIT_S}",
                "algorithm.batch_size=128",
                "collect.warmup=2560",
                "checkpoint.every=1000000",
            ],
            prepare=prepare,
            sidecar=stragglers if injector == "sidecar" else None,
        )
    times = np.array([record.round_s for record in records[rounds // 10 :]])
    return Measured(
        median_s=float(np.median(times)),
        p95_s=float(np.quantile(times, 0.95)),
        cpu_s=cpu_s,
        digests=[record.update_digest for record in records],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--injector", choices=("learner", "sidecar"), default="learner")
    arguments = parser.parse_args()
    rounds, injector = arguments.rounds, arguments.injector
    print(f"M = {AGENTS}, N = {LEARNERS}, {UNIT_S} s a unit (emulated), delay {DELAY_S} s,")
    print(f"injected by the {injector}:\n")
    print("| code | k | median, s | p95, s | CPU, s | median without them, s | ratio | digests |")
    print("|---|---|---|---|---|---|---|---|")
    failed = False
    for tolerance, k in ((1, 1), (2, 2), (7, 7)):
        code = ["code.name=cyclic", f"code.tolerance={tolerance}"]
        slow = measure(code, k, rounds, injector=injector)
        without = measure(code, k, rounds, partial(pass_over, k), injector=injector)
        ratio, equal = slow.median_s / without.median_s, slow.digests == without.digests
        failed |= ratio > CLAIM or slow.p95_s >= DELAY_S or not equal
        print(
            f"| cyclic, s = {tolerance} | {k} | {slow.median_s:.3f} | {slow.p95_s:.3f} | "
            f"{slow.cpu_s:.1f} | {without.median_s:.3f} | {ratio:.2f} (at most {CLAIM:.2f}) | "
            f"{'equal' if equal else 'differ'} |"
        )
    for k, count in ((0, rounds), (2, max(10, rounds // 5))):
        plain = measure(["code.name=uncoded"], k, count, injector=injector)
        failed |= k > 0 and plain.p95_s < DELAY_S
        figures = f"{plain.median_s:.3f} | {plain.p95_s:.3f} | {plain.cpu_s:.1f}"
        print(f"| uncoded | {k} | {figures} | | | |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
