"""Claim: cooperative navigation is learnt in a third of the CPU time that MADDPG takes elsewhere.

Each player trains M = 3 agents on Fullrank's own environment, all copies stepped as arrays, in a
process of its own with one thread. Its greedy policy plays the same 200 episodes every few seconds;
a return counts when the mean reaches it, and the time of these evaluations does not count. Returns
are sums over agents and 25 steps; random play has -685.

* ``fullrank``: ``LocalRun`` with the defaults, what ``fullrank train --local`` computes
* ``benchmarl``: BenchMARL's MADDPG (TorchRL's losses, collector and buffer) as shipped
* ``benchmarl-alike``: the same with Fullrank's networks, batch, rates and collection, and a
  learning rate of 0.001

A player whose package is missing is left out. ``benchmarl`` needs hydra-core.

    OMP_NUM_THREADS=1 python benchmarks/learns_peers.py --seeds 0 --cap 600
"""

import argparse
import importlib.util
import multiprocessing
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from fullrank.environments.base import make_environment
from fullrank.training.evaluation import Act, Greedy, evaluate

TASK, AGENTS, EPISODES, EVALUATION_SEED = "cooperative_navigation", 3, 200, 1000
TARGETS = (-475.0, -425.0)
LEAST_RATIO = 3.0


class Finished(Exception):
    """Every return is reached, or the time is over."""


@dataclass(slots=True)
class Clock:
    """CPU and wall time of training, without that of evaluations.

    Args:
        cap_s: CPU seconds of training after which to stop.
        every_s: CPU seconds between evaluations.
    """

    cap_s: float
    every_s: float
    reached: dict[float, tuple[float, float, int]] = field(default_factory=dict)
    """CPU seconds, wall seconds and environment steps of each return."""
    last: tuple[float, float, int] = (0.0, 0.0, 0)
    """Mean return at the last evaluation, its CPU seconds and steps."""
    _aside: tuple[float, float] = (0.0, 0.0)
    _due_s: float = 0.0
    _began: tuple[float, float] = (0.0, 0.0)

    def start(self) -> None:
        """Begin to count; imports come before."""
        self._began = (time.process_time(), time.perf_counter())
        self._due_s = self.every_s

    def look(self, steps: int, act: Act) -> None:
        """Evaluate ``act`` if it is due.

        Args:
            steps: Transitions of all agents together that were collected.
            act: Greedy policy.

        Raises:
            Finished: There is nothing left to wait for.
        """
        now = (time.process_time(), time.perf_counter())
        cpu_s, wall_s = (n - b - a for n, b, a in zip(now, self._began, self._aside, strict=True))
        if cpu_s < min(self._due_s, self.cap_s):
            return
        environment = make_environment(TASK, agents=AGENTS, copies=50)
        mean = float(evaluate(environment, act, EPISODES, EVALUATION_SEED).returns.mean())
        for target in TARGETS:
            if mean >= target:
                self.reached.setdefault(target, (cpu_s, wall_s, steps))
        self.last = (mean, cpu_s, steps)
        print(f"{cpu_s:.0f} s, {steps} steps: {mean:.1f}", file=sys.stderr, flush=True)
        after = (time.process_time(), time.perf_counter())
        self._aside = (self._aside[0] + after[0] - now[0], self._aside[1] + after[1] - now[1])
        self._due_s = cpu_s + self.every_s
        if len(self.reached) == len(TARGETS) or cpu_s >= self.cap_s:
            raise Finished


def fullrank(clock: Clock, seed: int) -> None:
    """Train by ``LocalRun`` with the default settings."""
    from fullrank.config import load
    from fullrank.local import LocalRun

    config = load(overrides=[f"seed={seed}", "iterations=100000"]).check().config
    clock.start()
    run = LocalRun(config, coded=False)
    act = Greedy(run.training.algorithm.actor)
    per_iteration = config.environment.copies * config.collect.steps
    for number, _ in enumerate(run):
        clock.look(config.collect.warmup + number * per_iteration, act)


def benchmarl(clock: Clock, seed: int, *, alike: bool = False) -> None:
    """Train by BenchMARL's experiment."""
    from benchmarl_maddpg import train

    clock.start()
    train(clock.look, agents=AGENTS, seed=seed, alike=alike)


PLAYERS: dict[str, tuple[str, Callable[[Clock, int], None]]] = {
    "fullrank": ("fullrank", fullrank),
    "benchmarl": ("benchmarl", benchmarl),
    "benchmarl-alike": ("benchmarl", lambda clock, seed: benchmarl(clock, seed, alike=True)),
}
"""Package and training of each player."""


def play(name: str, seed: int, cap_s: float, every_s: float) -> Clock:
    """Train one player to all returns, or to the cap."""
    import torch

    torch.set_num_threads(1)
    clock = Clock(cap_s, every_s)
    with suppress(Finished):
        PLAYERS[name][1](clock, seed)
    return clock


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU seconds to a return beside peers.")
    parser.add_argument("--players", nargs="+", default=list(PLAYERS), choices=list(PLAYERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--cap", type=float, default=600.0, help="CPU seconds of a training")
    parser.add_argument("--every", type=float, default=3.0, help="CPU seconds per evaluation")
    chosen = parser.parse_args()
    times: dict[str, dict[float, list[float]]] = {}
    print("| player | seed | return | CPU, s | wall, s | environment steps |")
    print("|---|---|---|---|---|---|")
    for name in chosen.players:
        if importlib.util.find_spec(PLAYERS[name][0]) is None:
            continue
        times[name] = {target: [] for target in TARGETS}
        for seed in chosen.seeds:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                clock = pool.apply(play, (name, seed, chosen.cap, chosen.every))
            for target in TARGETS:
                cpu_s, wall_s, steps = clock.reached.get(target, (np.inf, np.inf, 0))
                times[name][target].append(cpu_s)
                cells = f"{cpu_s:.0f} | {wall_s:.0f} | {steps:,}"
                if target not in clock.reached:
                    mean, cpu_s, steps = clock.last
                    cells = f"not within {cpu_s:.0f} | | {steps:,}: {mean:.0f}"
                print(f"| {name} | {seed} | {target:.0f} | {cells} |", flush=True)
    return int(not judge(times, chosen.cap))


def judge(times: dict[str, dict[float, list[float]]], cap_s: float) -> bool:
    """Print the ratios of each peer to Fullrank; a peer that did not arrive counts as the cap."""
    holds = True
    for name in times.keys() - {"fullrank"}:
        for target in TARGETS if "fullrank" in times else ():
            ours = median(times["fullrank"][target])
            theirs = median(min(value, cap_s) for value in times[name][target])
            bound = "at least " if any(np.isinf(times[name][target])) else ""
            print(f"\n{name} to {target:.0f}: {bound}{theirs / ours:.1f} times Fullrank's time")
            holds &= theirs >= LEAST_RATIO * ours
    return holds


if __name__ == "__main__":
    sys.exit(main())
