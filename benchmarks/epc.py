"""Claim: in Ising, EPC starts 16 agents at the optimum; trained from scratch they do not reach it.

For each seed three teams of 9 spins learn, and the best two seed three teams of 16. The best of
these is judged before its first update: it must earn at least 0.95 of the optimum, 52 M an episode
of 26 steps, in most seeds. Beside it a team of 16 learns from scratch for as long as a team of 9
did. Then the cost of an update in Food Collection is compared with MADDPG's on the same
transitions.

    OMP_NUM_THREADS=1 python benchmarks/epc.py --seeds 0 1 2
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.maddpg import MADDPG
from fullrank.common.types import FloatArray
from fullrank.training.rollouts import Rollout
from fullrank_reproduction.baselines.epc.curriculum import Curriculum, Stage
from fullrank_reproduction.baselines.epc.population import TrainedTeam, best, train
from fullrank_reproduction.baselines.epc.practice import Learner, Point, Practice

SHARE = 0.95
SMALL, LARGE = 9, 16
COSTED = (6, 12, 24)
SETTLING = 10
"""Updates of the larger teams after the first evaluation."""
PRACTICE = Practice(warmup=500, evaluate_every=10, learning=Hyperparameters(batch_size=32))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--iterations", type=int, default=40, help="of a run")
    parser.add_argument("--batch", type=int, default=32, help="transitions of a costed update")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    holds = grows(arguments.seeds, arguments.iterations)
    costs(arguments.batch)
    return not holds


def grows(seeds: list[int], iterations: int) -> bool:
    """Tell if the teams of most seeds start near the optimum."""
    print(
        f"Returns of {LARGE} agents (optimum {52 * LARGE}) by EPC before their first update, and "
        f"from scratch; updates and CPU seconds until {SHARE} of the optimum:\n"
    )
    print(f"| seed | best of {SMALL} | EPC | from scratch, most | after |")
    print("|---|---|---|---|---|")
    near = 0
    for seed in seeds:
        small, grown, alone = teams(seed, iterations)
        near += grown.points[0].mean_return >= SHARE * 52 * LARGE
        facts = (
            f"{small.score:.0f}",
            f"{grown.points[0].mean_return:.0f}",
            f"{max(point.mean_return for point in alone.points):.0f}",
            reached(alone.points),
        )
        print("|", seed, "|", " | ".join(facts), "|", flush=True)
    print(f"\n{near} of {len(seeds)} teams start at {SHARE} of the optimum or more")
    return near > len(seeds) / 2


def teams(seed: int, iterations: int) -> tuple[TrainedTeam, TrainedTeam, TrainedTeam]:
    """Train the best small team, the large team that starts best, and one from scratch."""
    curriculum = Curriculum(
        environment="ising",
        params={"extra_step": True},
        stages=(
            Stage(agents=SMALL, iterations=iterations),
            Stage(agents=LARGE, iterations=SETTLING),
        ),
        seed=seed,
        practice=PRACTICE,
    )
    longer = replace(curriculum, stages=(Stage(agents=LARGE, iterations=iterations),)).scratch()
    with tempfile.TemporaryDirectory() as folder:
        runs = list(train(curriculum, Path(folder) / "grown", clock=time.process_time))
        (alone,) = train(longer, Path(folder) / "scratch", clock=time.process_time)
    (small,) = best([run for run in runs if run.stage == 0], 1)
    large = (run for run in runs if run.stage == 1)
    return small, max(large, key=lambda run: run.points[0].mean_return), alone


def reached(points: tuple[Point, ...]) -> str:
    """Updates and CPU seconds until a run first reached the share, or ``never``."""
    for point in points:
        if point.mean_return >= SHARE * 52 * LARGE:
            return f"{point.iteration} updates, {point.seconds:.0f} s"
    return "never"


def costs(batch: int) -> None:
    """Print the time of an update of all agents, both methods in turn."""
    print(f"\nAn update of all agents, B = {batch}, one thread, medians of 3:\n")
    print("| M | EPC, s | MADDPG, s | ratio |")
    print("|---|---|---|---|")
    for agents in COSTED:
        epc, maddpg = methods(agents, batch)
        times = [(cpu_s(epc, turn), cpu_s(maddpg, turn)) for turn in range(4)][1:]
        slow, fast = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"| {agents} | {slow:.2f} | {fast:.4f} | {slow / fast:.0f} |", flush=True)


def methods(agents: int, batch: int) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """Build a team's update by EPC and by MADDPG, as functions of the iteration."""
    curriculum = Curriculum(
        environment="food_collection", stages=(Stage(agents=agents, iterations=1),)
    )
    world, team = curriculum.make(agents, 8), curriculum.team(agents)
    layout = layout_of(world.agents)
    rows: FloatArray = Rollout(world, team, layout, seed=0).collect(-(-batch // 8), 0).rows[:batch]
    learner = Learner(team, layout, Hyperparameters(), seed=0)
    algorithm = MADDPG(batch_size=batch).make(
        EnvironmentSpec(agents=tuple(world.agents)), seed=0, device="cpu"
    )

    def maddpg(iteration: int) -> None:
        units = dict(algorithm.gradients.compute(rows, range(agents), iteration=iteration))
        algorithm.optimiser.step(np.stack([units[agent] for agent in range(agents)]))

    return lambda iteration: learner.update(rows, iteration=iteration), maddpg


def cpu_s(update: Callable[[int], None], iteration: int) -> float:
    begun = time.process_time()
    update(iteration)
    return time.process_time() - begun


if __name__ == "__main__":
    sys.exit(main())
