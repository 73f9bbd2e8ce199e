"""Claim: particle tasks step at least 50 times as fast as mpe2's on one core.

Whole episodes, resets included, with random actions drawn beforehand. Fullrank steps 64 copies,
mpe2 one. Both run in this process, in turn in every round, and are measured in CPU seconds of the
process. mpe2 has keep away with one agent on each side only, and no Rover Tower. Exits with 1 if
the median ratio over the rounds of any task is below 50 (100 for cooperative navigation).

    OMP_NUM_THREADS=1 python benchmarks/fast_world.py
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpe2 import (
    simple_adversary_v3,
    simple_push_v3,
    simple_speaker_listener_v4,
    simple_spread_v3,
    simple_tag_v3,
)

from fullrank.environments import Discrete, make_environment

COPIES = 64
HORIZON = 25

Play = Callable[[int], int]
"""Plays episodes seeded by the number of the round; returns the number of environment steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The same task in Fullrank and in mpe2."""

    name: str
    agents: int
    params: Mapping[str, int] = field(default_factory=dict)
    factory: Callable[..., Any]
    arguments: Mapping[str, int] = field(default_factory=dict)
    claim: float = 50.0


TASKS = (
    Task(
        name="cooperative_navigation",
        agents=8,
        factory=simple_spread_v3.parallel_env,
        arguments={"N": 8},
        claim=100.0,
    ),
    Task(
        name="predator_prey",
        agents=8,
        factory=simple_tag_v3.parallel_env,
        arguments={"num_good": 4, "num_adversaries": 4, "num_obstacles": 2},
    ),
    Task(
        name="physical_deception",
        agents=8,
        params={"adversaries": 1},
        factory=simple_adversary_v3.parallel_env,
        arguments={"N": 7},
    ),
    Task(name="keep_away", agents=2, factory=simple_push_v3.parallel_env),
    Task(name="speaker_listener", agents=2, factory=simple_speaker_listener_v4.parallel_env),
)


def vectorised(task: Task, *, copies: int, episodes: int) -> Play:
    environment = make_environment(
        task.name, agents=task.agents, copies=copies, horizon=HORIZON, **task.params
    )
    all_copies = list(range(copies))
    generator = np.random.default_rng(0)
    parts = [
        np.eye(agent.action.n, dtype=np.float32)[
            generator.integers(agent.action.n, size=(HORIZON, copies))
        ]
        for agent in environment.agents
        if isinstance(agent.action, Discrete)
    ]
    actions = np.concatenate(parts, axis=-1)

    def play(number: int) -> int:
        for episode in range(episodes):
            seed = (number * episodes + episode) * copies
            environment.reset(range(seed, seed + copies), all_copies)
            for action in actions:
                environment.step(action)
        return episodes * HORIZON * copies

    return play


def agent_by_agent(task: Task, *, episodes: int) -> Play:
    environment = task.factory(max_cycles=HORIZON, **task.arguments)
    assert len(environment.possible_agents) == task.agents
    generator = np.random.default_rng(0)
    choices = {
        agent: generator.integers(environment.action_space(agent).n, size=HORIZON).tolist()
        for agent in environment.possible_agents
    }
    actions = [{agent: choices[agent][t] for agent in choices} for t in range(HORIZON)]

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


def compare(task: Task, rounds: int) -> bool:
    """Print the task's row; return whether its claim holds."""
    many = vectorised(task, copies=COPIES, episodes=20)
    one = vectorised(task, copies=1, episodes=20)
    baseline = agent_by_agent(task, episodes=8)
    players = (many, one, baseline)
    for play in players:
        play(rounds)  # warm up
    speeds = [[speed(play, number) for play in players] for number in range(rounds)]
    fast, single, slow = (statistics.median(column) for column in zip(*speeds, strict=True))
    ratios = sorted(many_speed / other for many_speed, _, other in speeds)
    ratio = statistics.median(ratios)
    spread = f"{ratios[0]:.0f} to {ratios[-1]:.0f}"
    print(
        f"| {task.name} | {task.agents} | {slow:,.0f} | {single:,.0f} | {fast:,.0f} | {ratio:.0f} "
        f"| {spread} | {task.claim:.0f} |"
    )
    return ratio >= task.claim


def main() -> int:
    parser = argparse.ArgumentParser(description="Steps per CPU second against mpe2.")
    parser.add_argument("--rounds", type=int, default=9, help="alternations, the median counts")
    rounds = parser.parse_args().rounds
    print("| task | agents | mpe2, steps/s | 1 copy | 64 copies | times mpe2 | spread | claim |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    held = [compare(task, rounds) for task in TASKS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
