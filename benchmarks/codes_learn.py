"""Claim: with independent samples, dense codes learn more if rounds wait for a low variance.

Food Collection, M agents on 2 M learners, each of which draws its own B samples of each unit
(``algorithm.data=independent``). An iteration commits at rank M alone, as in [DARL1N], or, where it
makes a difference, once the predicted variance of its gradients is at most the default of
``algorithm.max_variance``. Policies are evaluated greedily every ten iterations; the return is the
mean of the last five evaluations. *Gain* is the return above that of the same code and seed at rank
M alone. In mode *keyed* the holders of a unit share its samples, so every code and J commit the
same bits. Lateness is drawn independently of rows: it does not change learning, but it changes
times. *Waits* is the share of rounds that need a late learner when each is late with probability
0.2 or 0.5. The claim holds if every dense code (``mds``, ``random_sparse``) gains in every seed.
The team of Table VI has M = 12; ``--agents 12`` takes four times as long as the default of 6.

    OMP_NUM_THREADS=1 python benchmarks/codes_learn.py --seeds 0 1 2 --processes 2
"""

import argparse
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean, median
from typing import NamedTuple

from fullrank.algorithms.darl1n import DARL1N
from fullrank.codes import Code, make_code
from fullrank.codes.analysis import decoded_variances, variance_ok
from fullrank.common.seeding import stream
from fullrank.config import load
from fullrank.local import LocalRun

JUDGED = 5
COPIES, BATCH = 20, 256
LIMIT = DARL1N().max_variance
CODES = ("uncoded", "replication", "ldgm", "random_sparse", "mds")
DENSE = ("random_sparse", "mds")
ETAS = (0.2, 0.5)
ROUNDS = 1000


class Way(NamedTuple):
    """A code and the variance at which its iterations commit; None for keyed samples."""

    code: str
    limit: float | None

    def __str__(self) -> str:
        if self.limit is None:
            return "keyed | rank M"
        when = "rank M" if math.isinf(self.limit) else f"variance {self.limit:g}"
        return f"{self.code} | {when}"


class Learnt(NamedTuple):
    """Outcome of training with one seed."""

    rows: float
    """Rows received in the median iteration."""
    variance: float
    """Median variance, relative to one learner's own gradient."""
    first: float
    """Return before the first update."""
    last: float


def train(way: Way, agents: int, seed: int, iterations: int) -> Learnt:
    """Train in one process; learners answer in random order."""
    independent = {"algorithm.data": "independent", "algorithm.max_variance": way.limit}
    options = {
        "seed": seed,
        "iterations": iterations + 1,
        "environment.name": "food_collection",
        "environment.agents": agents,
        "environment.copies": COPIES,
        "algorithm.name": "darl1n",
        "algorithm.batch_size": BATCH,
        "code.name": way.code,
        "learners": agents if way.code == "uncoded" else 2 * agents,
        "stragglers.name": "exponential",
        "stragglers.mean_s": 1.0,
        **({} if way.limit is None else independent),
    }
    rows, variances, returns = [], [], []
    for iteration in LocalRun(load(options=options).check().config):
        rows.append(len(iteration.received))
        variances.append(iteration.variance or 0.0)
        returns += [] if iteration.return_mean is None else [iteration.return_mean]
    return Learnt(median(rows), median(variances), returns[0], fmean(returns[-JUDGED:]))


def waits(code: Code, limit: float, eta: float) -> float:
    """Share of rounds that the learners in time cannot complete."""
    working = code.matrix[code.load > 0]
    waited = 0
    for number in range(ROUNDS):
        rows = working[stream(0, "in_time", number).random(len(working)) >= eta]
        variance = float(decoded_variances(rows).mean()) if len(rows) else math.inf
        waited += len(rows) < len(working) and not variance_ok(variance, limit)
    return waited / ROUNDS


def report(way: Way, agents: int, runs: Sequence[Learnt], plain: Sequence[Learnt]) -> None:
    """Print a row of the table."""
    returns = sorted(run.last for run in runs)
    gains = sorted(run.last - other.last for run, other in zip(runs, plain, strict=True))
    shares = "- | -"
    if way.limit is not None:
        size = agents if way.code == "uncoded" else 2 * agents
        code = make_code(way.code, rows=size, units=agents)
        shares = " | ".join(f"{waits(code, way.limit, eta):.2f}" for eta in ETAS)
    gain = f"{fmean(gains):+.1f} ({gains[0]:+.1f} to {gains[-1]:+.1f})" if runs != plain else "-"
    print(
        f"| {way} | {median(run.rows for run in runs):g} | "
        f"{median(run.variance for run in runs):.2f} | "
        f"{fmean(returns):.1f} ({returns[0]:.1f} to {returns[-1]:.1f}) | {gain} | {shares} |",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    ways = [Way("uncoded", None), *(Way(code, math.inf) for code in CODES)]
    ways += [Way(code, LIMIT) for code in DENSE]
    print(
        f"Food Collection, M = {asked.agents}; not the defaults: {COPIES} copies, "
        f"batch {BATCH}, {asked.iterations} iterations.\n"
    )
    print("| code | commit at | rows | variance | return | gain | waits, 0.2 | waits, 0.5 |")
    print("|---|---|---|---|---|---|---|---|")
    results: dict[Way, list[Learnt]] = {}
    with ProcessPoolExecutor(asked.processes) as pool:
        pending = {
            way: [
                pool.submit(train, way, asked.agents, seed, asked.iterations)
                for seed in asked.seeds
            ]
            for way in ways
        }
        for way, runs in pending.items():
            results[way] = [run.result() for run in runs]
            plain = results[way] if way.limit is None else results[Way(way.code, math.inf)]
            report(way, asked.agents, results[way], plain)
    begun = fmean(run.first for run in results[ways[0]])
    print(f"\nBefore the first update the return is {begun:.1f}.")
    gains = [
        waiting.last - hasty.last
        for code in DENSE
        for waiting, hasty in zip(
            results[Way(code, LIMIT)], results[Way(code, math.inf)], strict=True
        )
    ]
    return int(min(gains) <= 0.0)


if __name__ == "__main__":
    sys.exit(main())
