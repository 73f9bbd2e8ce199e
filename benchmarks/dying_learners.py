"""Claim: as many learners as the code tolerates may die in every round without making it longer.

M = 4, N = 6, ``cyclic`` with tolerance 2: two units a learner, 0.5 s each (emulated). In every
round two learners chosen at random are killed (kill -9) while they compute, and restarted at once.
The median round is compared with that of the same run without deaths, in turn, and both runs must
commit the bits of the run in one process.

    OMP_NUM_THREADS=1 python benchmarks/dying_learners.py --rounds 12
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NoReturn

import numpy as np
import psutil

from fullrank.config import Resolved, load
from fullrank.local import LocalRun
from fullrank.rpc.process import Launch
from fullrank.runs.record import METRICS, IterationRecord, read_records
from local_services import start

CLAIM, TURNS = 1.10, 2
LEARNERS, DYING = 6, 2
AT_WORK_S = 1.5
"""Age at which a learner has certainly joined, seconds."""
SETTINGS = (
    f"learners={LEARNERS}",
    "environment.agents=4",
    "environment.copies=2",
    "code.name=cyclic",
    f"code.tolerance={DYING}",
    "collect.warmup=256",
    "algorithm.batch_size=64",
    "compute.emulate_unit_s=0.5",
    "checkpoint.every=1000000",
    "metrics.sinks=[]",
)


def supervise(resolved: Resolved, run_dir: Path) -> NoReturn:
    """Keep N learners alive, forked from a process with all imports done."""
    from fullrank.algorithms import algorithms
    from fullrank_learner.server import main as learn

    os.environ["OMP_NUM_THREADS"] = "1"
    algorithms.get(resolved.config.algorithm.name)

    def spawn() -> None:
        if not os.fork():
            os._exit(learn(Launch(resolved=resolved, run_dir=run_dir)))

    for _ in range(LEARNERS):
        spawn()
    while True:
        os.wait()
        spawn()


def committed(run_dir: Path) -> list[IterationRecord]:
    """Iterations committed so far."""
    metrics = run_dir / METRICS
    return read_records(metrics) if metrics.exists() else []


def run(rounds: int, *, dying: int, seed: int) -> tuple[list[IterationRecord], int]:
    """Train; return the iterations and the number of deaths."""
    resolved = load(overrides=[f"iterations={rounds}", *SETTINGS])
    draws, deaths, last = np.random.default_rng(seed), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch)
        services = [start(name, resolved, run_dir) for name in ("replay", "controller")]
        context = multiprocessing.get_context("spawn")
        supervisor = context.Process(target=supervise, args=(resolved, run_dir))
        supervisor.start()
        try:
            while (now := len(committed(run_dir))) < rounds:
                if now > last:
                    last = now
                    time.sleep(float(draws.uniform(0.1, 0.7)))  # into the middle of the next round
                    deaths += kill(psutil.Process(supervisor.pid), dying, draws)
                time.sleep(0.01)
        finally:
            learners = psutil.Process(supervisor.pid).children()
            supervisor.kill()
            supervisor.join()
            for learner in learners:
                learner.terminate()
            psutil.wait_procs(learners)
            for service in services:
                service.terminate()
                service.join()
        return committed(run_dir), deaths


def kill(supervisor: psutil.Process, count: int, draws: np.random.Generator) -> int:
    """Kill learners at work; return their number."""
    born_before = time.time() - AT_WORK_S
    at_work = [child for child in supervisor.children() if child.create_time() < born_before]
    chosen = draws.permutation(len(at_work))[:count]
    for index in chosen:
        with suppress(psutil.NoSuchProcess):
            at_work[index].kill()
    return len(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    reference = [
        iteration.update_digest
        for iteration in LocalRun(
            load(overrides=[f"iterations={rounds}", *SETTINGS]).check().config, coded=False
        ).train()
    ]
    ratios, deaths, equal = [], 0, True
    print("| turn | no deaths, s | two deaths in every round, s | deaths | ratio |")
    print("|---|---|---|---|---|")
    for turn in range(TURNS):
        calm, _ = run(rounds, dying=0, seed=turn)
        rough, died = run(rounds, dying=DYING, seed=turn)
        calm_s, rough_s = (
            median(record.round_s for record in records[1:]) for records in (calm, rough)
        )
        ratios.append(rough_s / calm_s)
        deaths += died
        equal &= all([r.update_digest for r in records] == reference for records in (calm, rough))
        print(f"| {turn} | {calm_s:.3f} | {rough_s:.3f} | {died} | {ratios[-1]:.3f} |", flush=True)
    print(
        f"\n{deaths} deaths in {TURNS * rounds} rounds, median round {median(ratios):.3f} of that "
        f"without ({min(ratios):.3f} to {max(ratios):.3f}, claimed {CLAIM} at most), digests "
        f"{'all' if equal else 'NOT all'} equal to those of one process."
    )
    return int(not equal or median(ratios) > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
