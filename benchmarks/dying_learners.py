"""Learners may die in every round: as many as the code tolerates, and the rounds take no longer.

M = 4, N = 6, ``cyclic`` with tolerance 2: two units a learner, 0.5 s each (emulated). In every
round two learners chosen at random are killed (kill -9) while they compute, and started again at
once. The median round is compared with that of the same run in which nobody dies, in turn, and both
runs must commit the bits of the run in one process.

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
from fullrank.rpc.launch import Launch
from fullrank.runs.record import METRICS, IterationRecord, read_records
from local_services import start

CLAIM, TURNS = 1.10, 2
LEARNERS, DYING = 6, 2
AT_WORK_S = 1.5
"""A learner that lives so long has certainly joined."""
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


def nurse(resolved: Resolved, run_dir: Path) -> NoReturn:
    """Keep N learners alive: forked from a process that has imported all they need."""
    from fullrank.algorithms import algorithms
    from fullrank_learner.server import main as learn

    os.environ["OMP_NUM_THREADS"] = "1"
    algorithms.get(resolved.config.algorithm.name)

    def bear() -> None:
        if not os.fork():
            os._exit(learn(Launch(resolved=resolved, run_dir=run_dir)))

    for _ in range(LEARNERS):
        bear()
    while True:
        os.wait()
        bear()


def committed(run_dir: Path) -> list[IterationRecord]:
    """The iterations so far."""
    metrics = run_dir / METRICS
    return read_records(metrics) if metrics.exists() else []


def run(rounds: int, *, dying: int, seed: int) -> tuple[list[IterationRecord], int]:
    """Train; the iterations, and how many learners died."""
    resolved = load(overrides=[f"iterations={rounds}", *SETTINGS])
    draws, deaths, seen = np.random.default_rng(seed), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch)
        services = [start(name, resolved, run_dir) for name in ("replay", "controller")]
        context = multiprocessing.get_context("spawn")
        nursery = context.Process(target=nurse, args=(resolved, run_dir))
        nursery.start()
        try:
            while (now := len(committed(run_dir))) < rounds:
                if now > seen:
                    seen = now
                    time.sleep(float(draws.uniform(0.1, 0.7)))  # into the midst of the next round
                    deaths += kill(psutil.Process(nursery.pid), dying, draws)
                time.sleep(0.01)
        finally:
            learners = psutil.Process(nursery.pid).children()
            nursery.kill()
            nursery.join()
            for learner in learners:
                learner.terminate()
            psutil.wait_procs(learners)
            for service in services:
                service.terminate()
                service.join()
        return committed(run_dir), deaths


def kill(nursery: psutil.Process, count: int, draws: np.random.Generator) -> int:
    """End learners that are at work, without a word; how many."""
    born_before = time.time() - AT_WORK_S
    at_work = [each for each in nursery.children() if each.create_time() < born_before]
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
        each.update_digest
        for each in LocalRun(
            load(overrides=[f"iterations={rounds}", *SETTINGS]).check().config, coded=False
        ).train()
    ]
    ratios, deaths, equal = [], 0, True
    print("| turn | nobody dies, s | two die in every round, s | deaths | ratio |")
    print("|---|---|---|---|---|")
    for turn in range(TURNS):
        calm, _ = run(rounds, dying=0, seed=turn)
        rough, died = run(rounds, dying=DYING, seed=turn)
        calm_s, rough_s = (
            median(each.round_s for each in records[1:]) for records in (calm, rough)
        )
        ratios.append(rough_s / calm_s)
        deaths += died
        equal &= all([each.update_digest for each in got] == reference for got in (calm, rough))
        print(f"| {turn} | {calm_s:.3f} | {rough_s:.3f} | {died} | {ratios[-1]:.3f} |", flush=True)
    print(
        f"\n{deaths} deaths in {TURNS * rounds} rounds, median round {median(ratios):.3f} of that "
        f"without ({min(ratios):.3f} to {max(ratios):.3f}, claimed {CLAIM} at most), digests "
        f"{'all' if equal else 'NOT all'} those of one process."
    )
    return int(not equal or median(ratios) > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
