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
import sys
import time
from pathlib import Path

from matplotlib.figure import Figure

from fullrank.reproduction.darl1n.training.scaling import LINEAR, exponent, measured

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "darl1n_scales.png"
TEAMS = (12, 24, 48, 96)


def main() -> int:
    arguments = _arguments()
    spent = measured(("darl1n", "maddpg"), TEAMS, arguments.iterations, time.process_time)
    print("| M | DARL1N, s | MADDPG, s | MADDPG / DARL1N |\n|---|---|---|---|")
    for agents, darl1n, maddpg in zip(TEAMS, spent["darl1n"], spent["maddpg"], strict=True):
        print(f"| {agents} | {darl1n:.3f} | {maddpg:.3f} | {maddpg / darl1n:.2f} |")
    growth = {name: exponent(TEAMS, times) for name, times in spent.items()}
    _draw(spent, growth)
    print(f"\nDARL1N grows as M^{growth['darl1n']:.2f}, MADDPG as M^{growth['maddpg']:.2f}")
    return 0 if growth["darl1n"] <= LINEAR and growth["maddpg"] > growth["darl1n"] else 1


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
