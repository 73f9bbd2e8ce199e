"""Claim: on every particle task each trained side beats the random policy.

Each seed is trained, with adversaries learning by DDPG. Then each side plays greedily against
random opponents, and a random side plays the same opponents from the same initial states: in a
contest the gain of one side may be the loss of the other, so sides are judged one by one. The
difference of the mean returns is paired by seed; the claim holds if its 90 % bootstrap interval
lies above 0.

    OMP_NUM_THREADS=1 python benchmarks/beats_random.py --seeds 5 --processes 2
"""

import argparse
import sys
from collections.abc import Sequence
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
from fullrank_reproduction.wang21 import SETTINGS

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
    parser.add_argument("--iterations", type=int, default=1500)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", default=[task.name for task in TASKS])
    arguments = parser.parse_args()
    tasks = [task for task in TASKS if task.name in arguments.tasks]
    print(f"{arguments.seeds} seeds, {arguments.iterations} iterations, returns of a side:\n")
    print("| task | M | side | trained - random, mean | 90 % interval | every seed |")
    print("|---|---|---|---|---|---|")
    play = partial(gains, iterations=arguments.iterations, episodes=arguments.episodes)
    short = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for task in tasks:
            seeds = range(arguments.seeds)
            by_seed = list(pool.map(play, [task] * len(seeds), seeds))
            for side in by_seed[0]:
                values = np.array([gain[side] for gain in by_seed])
                mean, low, high = bootstrap(values, share=0.90)
                shown = ", ".join(f"{value:.1f}" for value in values)
                print(
                    f"| {task.name} | {task.agents} | {side} | {mean:.1f} | "
                    f"{low:.1f} to {high:.1f} | {shown} |",
                    flush=True,
                )
                if low <= 0.0:
                    short.append(f"{task.name} ({side})")
    print(f"\nfalls short: {', '.join(short)}" if short else "\nevery side beats the random policy")
    return bool(short)


def gains(task: Task, seed: int, *, iterations: int, episodes: int) -> dict[str, float]:
    """Gain of each side: mean return trained minus mean return random, opponents random."""
    config = configuration(task, seed, iterations)
    run = LocalRun(config, coded=False)
    try:
        run.train()
    finally:
        run.training.collector.close()
    trained, agents = Greedy(run.training.algorithm.actor), run.training.collector.agents
    sides = list(dict.fromkeys(agent.side for agent in agents))
    random = side_returns(config, [], trained, episodes=episodes)
    return {
        side: side_returns(config, [side], trained, episodes=episodes)[side] - random[side]
        for side in sides
    }


def configuration(task: Task, seed: int, iterations: int) -> RunConfig:
    """Configuration of one seed; a learning rate of 0.003 suits the small networks."""
    overrides = [
        *(f"{key}={value}" for key, value in SETTINGS.items()),
        f"seed={seed}",
        f"iterations={iterations}",
        f"environment.name={task.name}",
        f"environment.agents={task.agents}",
        "algorithm.learning_rate=0.003",
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
