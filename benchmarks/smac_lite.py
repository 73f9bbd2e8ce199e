"""Claim: SMAC-lite steps 64 copies of 3m, 2s3z, 8m, corridor at 50k, 30k, 25k, 12k steps/s a core.

Random play with full dynamics; a step includes observations, available actions and state, and the
resets of ended copies. The choice of the random actions is not counted. CPU seconds of the process,
the median of the rounds. Exits with 1 if a map falls short of its claim.

    OMP_NUM_THREADS=1 python benchmarks/smac_lite.py
"""

import argparse
import statistics
import sys
import time

import numpy as np

from fullrank.environments.smac_lite.environment import SmacLite, SmacLiteConfig

CLAIMS = {"3m": 50_000, "2s3z": 30_000, "8m": 25_000, "corridor": 12_000}
"""Environment steps per second."""
COPIES = 64


class Play:
    """Random play on all copies of a map.

    Args:
        task: Map.
        copies: E.
    """

    def __init__(self, task: str, copies: int) -> None:
        self._environment: SmacLite = SmacLiteConfig(map=task).make(agents=0, copies=copies)
        self._generator = np.random.default_rng(0)
        self._started = copies
        self._environment.reset(range(copies), range(copies))

    def speed(self, steps: int) -> float:
        """Environment steps per CPU second."""
        spent = sum(self._step() for _ in range(steps))
        return steps * self._environment.copies / spent

    def _step(self) -> float:
        """CPU seconds of one step of all copies."""
        environment = self._environment
        shape = (environment.copies, len(environment.agents), -1)
        available = environment.available().reshape(shape)
        drawn = self._generator.random(available.shape, dtype=np.float32) * available
        action = (drawn == drawn.max(axis=2, keepdims=True)).astype(np.float32)
        joint = action.reshape(environment.copies, -1)
        start = time.process_time()
        step = environment.step(joint)
        environment.state()
        ended = np.flatnonzero(step.ended).tolist()
        if ended:
            environment.reset(range(self._started, self._started + len(ended)), ended)
        self._started += len(ended)
        return time.process_time() - start


def measure(task: str, claim: int, rounds: int) -> bool:
    """Print the map's row; return whether its claim holds."""
    many, one = Play(task, COPIES), Play(task, 1)
    for play in (many, one):
        play.speed(50)  # warm up
    speeds = sorted(many.speed(200) for _ in range(rounds))
    single = statistics.median(one.speed(200) for _ in range(rounds))
    middle = statistics.median(speeds)
    spread = f"{speeds[0]:,.0f} to {speeds[-1]:,.0f}"
    print(f"| {task} | {single:,.0f} | {middle:,.0f} | {spread} | {claim:,} |")
    return middle >= claim


def main() -> int:
    """Measure all maps; return the exit status."""
    parser = argparse.ArgumentParser(description="Steps per CPU second of SMAC-lite.")
    parser.add_argument("--rounds", type=int, default=9, help="rounds, whose median counts")
    rounds = parser.parse_args().rounds
    print("| map | 1 copy, steps/s | 64 copies, steps/s | spread | claim |")
    print("| --- | --- | --- | --- | --- |")
    held = [measure(task, claim, rounds) for task, claim in CLAIMS.items()]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
