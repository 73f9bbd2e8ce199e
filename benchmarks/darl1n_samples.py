"""Claim: in equal time, single steps from resets teach DARL1N as much as whole episodes do.

For the same CPU seconds in one process, seed by seed, Ising with 9 agents and Food Collection with
3 are learned from samples of either kind, B = 512 of each unit in every iteration. Single steps
start with velocities (``moving_start``), which episodes do not need. After half of the time and
after all of it the policies play 200 greedy episodes of the plain task. The claim holds if the mean
of the last returns over the seeds is not lower for single steps.

    OMP_NUM_THREADS=1 python benchmarks/darl1n_samples.py --seeds 0 1 2
"""

import argparse
import sys
import time
from typing import NamedTuple

from fullrank.config import RunConfig, load
from fullrank.environments import make_environment
from fullrank.local import LocalRun
from fullrank.training.evaluation import Act, Greedy, evaluate_and_close

EVALUATION_SEED, EPISODES = 1000, 200
TASKS = {"ising": (9, 6.0), "food_collection": (3, 10.0)}
"""Agents and CPU seconds of each task."""


class Point(NamedTuple):
    """A point of a learning curve."""

    iterations: int
    mean_return: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    print("| task | M | samples | seed | before | half of the time | all | CPU s | iterations |")
    print("|---|---|---|---|---|---|---|---|---|")
    less = []
    for task, (agents, cpu_s) in TASKS.items():
        means = {}
        for samples in ("resets", "episodes"):
            last = []
            for seed in seeds:
                config = configuration(task, agents, samples, seed)
                before, half, after = curve(config, cpu_s)
                last.append(after.mean_return)
                returns = [f"{point.mean_return:.1f}" for point in (before, half, after)]
                print(
                    f"| {task} | {agents} | {samples} | {seed} | {' | '.join(returns)} | "
                    f"{cpu_s:.0f} | {after.iterations} |",
                    flush=True,
                )
            means[samples] = sum(last) / len(last)
        if means["resets"] < means["episodes"]:
            less.append(task)
    print(f"\nless is learned in {', '.join(less)}" if less else "\nas much or more is learned")
    return int(bool(less))


def configuration(task: str, agents: int, samples: str, seed: int) -> RunConfig:
    """Configuration of one seed."""
    options = {
        "seed": seed,
        "iterations": 1_000_000,
        "environment.name": task,
        "environment.agents": agents,
        "algorithm.name": "darl1n",
        "algorithm.batch_size": 512,
        "algorithm.samples": samples,
        "algorithm.evaluate_every": 1_000_000,
        "learners": agents,
    }
    if task == "food_collection":
        options["environment.moving_start"] = samples == "resets"
    return load(options=options).check().config


def curve(config: RunConfig, cpu_s: float) -> tuple[Point, Point, Point]:
    """Evaluate before training, after half of the CPU seconds and after all."""
    run = LocalRun(config, coded=False)
    act, iterations, points = Greedy(run.training.algorithm.actor), 0, []
    training, used_s = iter(run), 0.0
    for until_s in (0.0, cpu_s / 2, cpu_s):
        while used_s < until_s:
            began = time.process_time()
            next(training)
            used_s += time.process_time() - began
            iterations += 1
        points.append(Point(iterations, played(config, act)))
    before, half, after = points
    return before, half, after


def played(config: RunConfig, act: Act) -> float:
    """Mean return of the plain task."""
    settings = config.environment
    environment = make_environment(settings.name, agents=settings.agents, copies=EPISODES)
    return float(evaluate_and_close(environment, act, EPISODES, EVALUATION_SEED).returns.mean())


if __name__ == "__main__":
    sys.exit(main())
