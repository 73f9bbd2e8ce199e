"""Claim: on every particle task each side trained with the defaults beats the random policy.

Each seed is trained, with adversaries learning by DDPG. At equal intervals each side plays greedily
against random opponents, and a random side plays the same opponents from the same initial states:
in a contest the gain of one side may be the loss of the other, so sides are judged one by one. The
difference of the mean returns is paired by seed; the claim holds if its 95 % bootstrap interval at
the end lies above 0. CPU times are those of training alone, the mean over seeds.

    OMP_NUM_THREADS=1 python benchmarks/beats_random.py --seeds 5 --processes 2
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from fullrank.common.types import BoolArray, FloatArray
from fullrank.config import RunConfig, load
from fullrank.environments import AgentSpec
from fullrank.local import LocalRun
from fullrank.runs.statistics import bootstrap
from fullrank.training.evaluation import Act, Greedy, evaluate_and_close, random_actions
from fullrank.wiring import environment_of

EVALUATION_SEED, OPPONENT_SEED = 1000, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task small enough to train in a minute."""

    name: str
    agents: int
    settings: tuple[str, ...] = ()


TASKS = (
    Task(name="cooperative_navigation", agents=3),
    Task(
        name="predator_prey",
        agents=4,
        settings=("environment.adversaries=1", 'algorithm.ddpg_sides=["prey"]'),
    ),
    Task(
        name="physical_deception",
        agents=3,
        settings=("environment.adversaries=1", 'algorithm.ddpg_sides=["adversary"]'),
    ),
    Task(
        name="keep_away",
        agents=2,
        settings=("environment.adversaries=1", 'algorithm.ddpg_sides=["adversary"]'),
    ),
    Task(name="speaker_listener", agents=2),
    Task(name="rover_tower", agents=4),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=4000)
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", default=[task.name for task in TASKS])
    arguments = parser.parse_args()
    tasks = [task for task in TASKS if task.name in arguments.tasks]
    print(f"{arguments.seeds} seeds; trained minus random, returns of a side, 95 % interval\n")
    print("| task | M | side | updates | CPU, s | mean | interval | every seed |")
    print("|---|---|---|---|---|---|---|---|")
    train = partial(
        curve,
        iterations=arguments.iterations,
        points=arguments.points,
        episodes=arguments.episodes,
    )
    short = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for task in tasks:
            seeds = range(arguments.seeds)
            curves = list(pool.map(train, [task] * len(seeds), seeds))
            for side in curves[0][0].gains:
                for points in zip(*curves, strict=True):
                    values = np.array([point.gains[side] for point in points])
                    mean, low, high = bootstrap(values)
                    cpu_s = np.mean([point.cpu_s for point in points])
                    print(
                        f"| {task.name} | {task.agents} | {side} | {points[0].updates:,} | "
                        f"{cpu_s:.0f} | {mean:.1f} | {low:.1f} to {high:.1f} | "
                        f"{', '.join(f'{value:.1f}' for value in values)} |",
                        flush=True,
                    )
                if low <= 0.0:
                    short.append(f"{task.name} ({side})")
    print(f"\nfalls short: {', '.join(short)}" if short else "\nevery side beats the random policy")
    return bool(short)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Play of the policies after a number of updates."""

    updates: int
    cpu_s: float
    gains: Mapping[str, float]
    """Mean return trained minus mean return random of each side, opponents random."""


def curve(task: Task, seed: int, *, iterations: int, points: int, episodes: int) -> list[Point]:
    """Train one seed, and play at equal intervals."""
    config = configuration(task, seed, iterations)
    run = LocalRun(config, coded=False)
    trained, agents = Greedy(run.training.algorithm.actor), run.training.collector.agents
    sides = list(dict.fromkeys(agent.side for agent in agents))
    random = side_returns(config, [], trained, episodes=episodes)
    curve, aside_s, began_s = list[Point](), 0.0, time.process_time()
    try:
        for updates, _ in enumerate(run, 1):
            if updates % (iterations // points):
                continue
            now_s = time.process_time()
            gains = {
                side: side_returns(config, [side], trained, episodes=episodes)[side] - random[side]
                for side in sides
            }
            curve.append(Point(updates=updates, cpu_s=now_s - began_s - aside_s, gains=gains))
            aside_s += time.process_time() - now_s
    finally:
        run.training.collector.close()
    return curve


def configuration(task: Task, seed: int, iterations: int) -> RunConfig:
    """Configuration of one seed."""
    overrides = [
        f"seed={seed}",
        f"iterations={iterations}",
        f"environment.name={task.name}",
        f"environment.agents={task.agents}",
        *task.settings,
    ]
    return load(None, environ={}, overrides=overrides).check().config


def side_returns(
    config: RunConfig, playing: Sequence[str], trained: Act, *, episodes: int
) -> dict[str, float]:
    """Mean return of each side; the sides ``playing`` act as trained, the others at random."""
    environment = environment_of(config, copies=episodes)
    random = random_actions(environment.agents, seed=OPPONENT_SEED)
    act = mixed(environment.agents, playing, trained, random)
    played = evaluate_and_close(environment, act, episodes, EVALUATION_SEED)
    return {side: float(values.mean()) for side, values in played.side_returns.items()}


def mixed(agents: Sequence[AgentSpec], playing: Sequence[str], act: Act, others: Act) -> Act:
    """Take actions of ``act`` for the sides ``playing`` and of ``others`` for the rest."""
    plays = np.repeat([agent.side in playing for agent in agents], [a.action.size for a in agents])

    def together(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        return np.where(plays, act(observation, available), others(observation, available))

    return together


if __name__ == "__main__":
    sys.exit(main())
