"""Claim: an iteration of DARL1N costs no more than linearly in M to 96; one of MADDPG grows faster.

Food Collection at one density (24 agents and pieces of food in a square of side 5), in which agents
see the six nearest pieces and up to six neighbours, so that an observation is as long in any team.
A centralised iteration has the updates of all units, Adam and the targets; MADDPG's also 4 copies x
25 steps of the environment, DARL1N's also B samples of each unit by local interaction. B = 256 in
both. CPU seconds, medians, both algorithms in turns in one process; growth is the exponent of M
from 24 to 96: in the square of 12, agents are so often near a wall that they have fewer around
them. Exits with 1 if DARL1N's is above 1.1 or MADDPG's is not above it.

    OMP_NUM_THREADS=1 python benchmarks/darl1n_scales.py
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from fullrank.config import load
from fullrank.local import LocalRun

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "darl1n_scales.png"
TEAMS = (12, 24, 48, 96)
ROOMY = 1
"""Index of the first team that growth counts from."""
LINEAR = 1.1
"""The largest exponent that counts as linear: a machine is never quite as fast twice."""


def main() -> int:
    arguments = _arguments()
    print("| M | DARL1N, s | MADDPG, s | MADDPG / DARL1N |\n|---|---|---|---|")
    spent: dict[str, list[float]] = {"darl1n": [], "maddpg": []}
    for agents in TEAMS:
        measured = iteration_s(agents, arguments.iterations)
        for name, seconds in measured.items():
            spent[name].append(seconds)
        darl1n, maddpg = measured["darl1n"], measured["maddpg"]
        print(f"| {agents} | {darl1n:.3f} | {maddpg:.3f} | {maddpg / darl1n:.2f} |", flush=True)
    growth = {name: _exponent(times[ROOMY:]) for name, times in spent.items()}
    _draw(spent, growth)
    print(f"\nDARL1N grows as M^{growth['darl1n']:.2f}, MADDPG as M^{growth['maddpg']:.2f}")
    return 0 if growth["darl1n"] <= LINEAR and growth["maddpg"] > growth["darl1n"] else 1


def _exponent(times: list[float]) -> float:
    return math.log(times[-1] / times[0]) / math.log(TEAMS[-1] / TEAMS[ROOMY])


def iteration_s(agents: int, iterations: int) -> dict[str, float]:
    """Median CPU seconds of an iteration with each algorithm; the first one does not count."""
    runs = {name: iter(_run(name, agents, iterations + 1)) for name in ("darl1n", "maddpg")}
    for run in runs.values():
        next(run)
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(iterations):
        for name, run in runs.items():
            spent[name].append(_cpu_s(run))
    return {name: statistics.median(times) for name, times in spent.items()}


def _cpu_s(run: Iterator[object]) -> float:
    began = time.process_time()
    next(run)
    return time.process_time() - began


def _run(algorithm: str, agents: int, iterations: int) -> LocalRun:
    options = {
        "iterations": iterations,
        "environment.name": "food_collection",
        "environment.agents": agents,
        "environment.half_width": 2.5 * math.sqrt(agents / 24),
        "environment.distance": 0.3,
        "environment.food_distance": 0.6,
        "environment.food_seen": 6,
        "environment.neighbours_seen": 6,
        "environment.moving_start": True,
        "collect.warmup": 256,
        "algorithm.name": algorithm,
        "algorithm.batch_size": 256,
        "learners": agents,
    }
    if algorithm == "darl1n":
        options["algorithm.evaluate_every"] = iterations
    return LocalRun(load(options=options).check().config, coded=False)


def _draw(spent: dict[str, list[float]], growth: dict[str, float]) -> None:
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, times in spent.items():
        axes.loglog(TEAMS, times, marker="o", label=f"{name.upper()}, M^{growth[name]:.2f}")
    axes.set_xticks(TEAMS, [str(agents) for agents in TEAMS])
    axes.minorticks_off()
    axes.set_xlabel("agents M")
    axes.set_ylabel("CPU time of an iteration, s")
    axes.legend()
    figure.savefig(PICTURE, dpi=120)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
