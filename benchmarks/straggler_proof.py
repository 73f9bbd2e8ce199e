"""Claim: rounds with k tolerated stragglers last as long as rounds that skip these learners.

M = 8, N = 15, emulated compute of 0.05 s a unit, k keyed stragglers of 1 s in every iteration. For
each code the run with stragglers is compared with the run in which the same k learners get no
assignment: the median round must be within 1.10 of it and the delay must not show in the 95th
percentile. ``uncoded`` pays the full delay. A batch of 128 keeps the real compute within the
emulated one, so that two cores can stand for fifteen machines.

``--injector sidecar`` delays the vectors in a proxy before the controller instead of in the
learners. Either way the run with stragglers commits the digests of the run without.

``--algorithm qmix`` measures rounds of a sum: battles of three marines, 5 micro-batches of 3
episodes, `fractional`, 2 s a unit, which hide the real compute of fifteen learners on a busy
machine; the median must be within 1.05.

    python benchmarks/straggler_proof.py --rounds 60
    python benchmarks/straggler_proof.py --rounds 60 --algorithm qmix
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fullrank.stragglers import FixedK
from local_services import nothing, train

DELAY_S, LEARNERS, SEED = 1.0, 15, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The rounds that are measured."""

    settings: tuple[str, ...]
    unit_s: float
    code: str
    cases: tuple[tuple[int, int], ...]
    """Tolerance s, and stragglers k."""
    claim: float
    """Largest ratio of the medians."""
    late_s: float = DELAY_S
    """Time of a round in which the delay shows, in seconds."""


TEAMS = {
    "maddpg": Team(
        settings=("environment.agents=8", "algorithm.batch_size=128", "collect.warmup=2560"),
        unit_s=0.05,
        code="cyclic",
        cases=((1, 1), (2, 2), (7, 7)),
        claim=1.10,
    ),
    "qmix": Team(
        settings=(
            "algorithm.name=qmix",
            "algorithm.micro_batches=5",
            "algorithm.batch_size=15",
            "algorithm.hidden=16",
            "environment.name=smac_lite",
            "environment.copies=1",
            "collect.warmup=400",
        ),
        unit_s=2.0,
        code="fractional",
        cases=((2, 2),),
        claim=1.05,
        late_s=2.0 + DELAY_S,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Times and digests of one run."""

    median_s: float
    p95_s: float
    cpu_s: float
    digests: list[str]


def pass_over(k: int) -> None:
    """Skip the ``k`` stragglers of each iteration in this process, the controller's."""
    from fullrank_controller.rounds.round_runner import Dispatcher

    assign = Dispatcher.assign
    stragglers = FixedK(k=k, delay_s=DELAY_S)

    async def assign_to_others(self: Dispatcher, rows: Sequence[int]) -> None:
        iteration, holders = self._opened.round.iteration, self._opened.assignment.holders
        delays = stragglers.delays(seed=SEED, iteration=iteration, learners=LEARNERS)
        await assign(self, [row for row in rows if not delays[holders[row].learner]])

    Dispatcher.assign = assign_to_others  # type: ignore[method-assign]


def measure(
    team: Team,
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
                *team.settings,
                *code,
                *(stragglers if injector == "learner" else ()),
                f"compute.emulate_unit_s={team.unit_s}",
                "checkpoint.every=1000",
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
    parser.add_argument("--algorithm", choices=tuple(TEAMS), default="maddpg")
    arguments = parser.parse_args()
    rounds, injector = arguments.rounds, arguments.injector
    team, name = TEAMS[arguments.algorithm], arguments.algorithm
    print(f"{name}, N = {LEARNERS}, {team.unit_s} s a unit (emulated), delay {DELAY_S} s,")
    print(f"injected by the {injector}:\n")
    print("| code | k | median, s | p95, s | CPU, s | median without them, s | ratio | digests |")
    print("|---|---|---|---|---|---|---|---|")
    failed = False
    for tolerance, k in team.cases:
        code = [f"code.name={team.code}", f"code.tolerance={tolerance}"]
        slow = measure(team, code, k, rounds, injector=injector)
        without = measure(team, code, k, rounds, partial(pass_over, k), injector=injector)
        ratio, equal = slow.median_s / without.median_s, slow.digests == without.digests
        failed |= ratio > team.claim or slow.p95_s >= team.late_s or not equal
        print(
            f"| {team.code}, s = {tolerance} | {k} | {slow.median_s:.3f} | {slow.p95_s:.3f} | "
            f"{slow.cpu_s:.1f} | {without.median_s:.3f} | {ratio:.2f} (at most {team.claim:.2f}) | "
            f"{'equal' if equal else 'differ'} |"
        )
    for k, count in ((0, rounds), (2, max(10, rounds // 5))):
        plain = measure(team, ["code.name=uncoded"], k, count, injector=injector)
        failed |= k > 0 and plain.p95_s < team.late_s
        figures = f"{plain.median_s:.3f} | {plain.p95_s:.3f} | {plain.cpu_s:.1f}"
        print(f"| uncoded | {k} | {figures} | | | |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
