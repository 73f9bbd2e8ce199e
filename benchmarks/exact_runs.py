"""Claim: runs under stragglers equal the runs without, bit for bit, for every code.

For each size and seed, coded runs with stragglers in every iteration must have the update digests
of the centralised run at every iteration, and its parameters (with targets and Adam's moments) at
the end. Each learner computes its own units by itself. Prints a Markdown table; exits with 1 if any
bit differs.

    python benchmarks/exact_runs.py --iterations 50 --seeds 0 1 2
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from fullrank.config import RunConfig, load
from fullrank.local import LocalRun

STRAGGLING = {"stragglers.name": "fixed_k", "stragglers.k": 2, "stragglers.delay_s": 1.0}
CODES: dict[str, dict[str, Any]] = {
    "uncoded": {"code.name": "uncoded"},
    "cyclic": {"code.name": "cyclic", "code.tolerance": 2, **STRAGGLING},
    "mds": {"code.name": "mds", **STRAGGLING},
    "replication": {"code.name": "replication", **STRAGGLING},
    "random_sparse": {"code.name": "random_sparse", **STRAGGLING},
}
LEARNERS = {3: 6, 8: 15}


class Result(NamedTuple):
    """Digests and totals of a run."""

    digests: list[str]
    parameters: str
    exact: bool
    late: int


def main() -> int:
    arguments = _arguments()
    print("| M | N | seed | code | late per iteration | digests equal | parameters equal |")
    print("|---|---|---|---|---|---|---|")
    equal = True
    for units, seed, name, result, reference in _results(arguments):
        same = sum(map(str.__eq__, result.digests, reference.digests))
        ends_equal = result.parameters == reference.parameters
        late = result.late / arguments.iterations
        print(
            f"| {units} | {LEARNERS[units]} | {seed} | {name} | {late:.1f} | "
            f"{same} of {arguments.iterations} | {'yes' if ends_equal else 'NO'} |",
            flush=True,
        )
        equal &= same == arguments.iterations and ends_equal and result.exact
    print("every run is equal" if equal else "runs differ")
    return not equal


def _results(arguments: argparse.Namespace) -> Iterator[tuple[int, int, str, Result, Result]]:
    for units in arguments.agents:
        for seed in arguments.seeds:
            base = {
                "environment.agents": units,
                "learners": LEARNERS[units],
                "iterations": arguments.iterations,
                "collect.warmup": arguments.warmup,
                "algorithm.batch_size": arguments.batch_size,
                "seed": seed,
            }
            reference = _run(load(options=base).check().config, coded=False)
            for name, options in CODES.items():
                config = load(options=base | options).check().config
                yield units, seed, name, _run(config, coded=True), reference


def _run(config: RunConfig, *, coded: bool) -> Result:
    run = LocalRun(config, coded=coded, independent_learners=True)
    iterations = run.train()
    return Result(
        digests=[iteration.update_digest for iteration in iterations],
        parameters=run.parameter_digest(),
        exact=all(iteration.exact for iteration in iterations),
        late=sum(len(iteration.late) for iteration in iterations),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--agents", type=int, nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--warmup", type=int, default=1024, help="transitions")
    parser.add_argument("--batch-size", type=int, default=256)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
