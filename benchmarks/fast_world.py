"""Environment steps per second of one core: cooperative navigation against mpe2.

Whole episodes of 8 agents, resets included, actions drawn beforehand. Both run in this process, one
after the other in every round, and are measured in CPU seconds of the process. Exits with status 1
if the median ratio over the rounds lies below the claim.

    OMP_NUM_THREADS=1 python benchmarks/fast_world.py
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from mpe2 import simple_spread_v3

from fullrank.environments import make_environment

AGENTS = 8
HORIZON = 25
CLAIM = 100.0

Play = Callable[[int], int]
"""Plays some episodes, seeded by the number of the round; returns environment steps made."""


def ours(copies: int, episodes: int) -> Play:
    environment = make_environment(
        "cooperative_navigation", agents=AGENTS, copies=copies, horizon=HORIZON
    )
    everybody = list(range(copies))
    choices = np.random.default_rng(0).integers(0, 5, size=(HORIZON, copies, AGENTS))
    actions = np.eye(5, dtype=np.float32)[choices].reshape(HORIZON, copies, -1)

    def play(number: int) -> int:
        for episode in range(episodes):
            seed = (number * episodes + episode) * copies
            environment.reset(range(seed, seed + copies), everybody)
            for action in actions:
                environment.step(action)
        return episodes * HORIZON * copies

    return play


def mpe2(episodes: int) -> Play:
    environment = simple_spread_v3.parallel_env(N=AGENTS, max_cycles=HORIZON)
    choices = np.random.default_rng(0).integers(0, 5, size=(HORIZON, AGENTS)).tolist()
    names = environment.possible_agents
    actions = [dict(zip(names, step, strict=True)) for step in choices]

    def play(number: int) -> int:
        for episode in range(episodes):
            environment.reset(seed=number * episodes + episode)
            for action in actions:
                environment.step(action)
        return episodes * HORIZON

    return play


def speed(play: Play, number: int) -> float:
    """Environment steps per CPU second."""
    start = time.process_time()
    steps = play(number)
    return steps / (time.process_time() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description="Steps per CPU second against mpe2.")
    parser.add_argument("--rounds", type=int, default=9, help="alternations, the median counts")
    rounds = parser.parse_args().rounds
    players = {
        "mpe2 simple_spread": mpe2(episodes=8),
        "cooperative_navigation, 1 copy": ours(copies=1, episodes=20),
        "cooperative_navigation, 64 copies": ours(copies=64, episodes=20),
    }
    for play in players.values():
        play(rounds)  # warm up
    speeds: dict[str, list[float]] = {name: [] for name in players}
    for number in range(rounds):
        for name, play in players.items():
            speeds[name].append(speed(play, number))
    baseline, *_, claimed = speeds.values()
    print("| environment, 8 agents | steps/s | spread | times mpe2 |\n| --- | --- | --- | --- |")
    for name, values in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(values, baseline, strict=True))
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        print(f"| {name} | {statistics.median(values):,.0f} | {spread} | {ratio:.1f} |")
    ratio = statistics.median(a / b for a, b in zip(claimed, baseline, strict=True))
    print(f"\nclaim: at least {CLAIM:.0f} times mpe2 with 64 copies; measured {ratio:.1f}")
    return 0 if ratio >= CLAIM else 1


if __name__ == "__main__":
    sys.exit(main())
