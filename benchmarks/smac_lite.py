"""Claim: SMAC-lite steps 64 copies of 3m, 2s3z, 8m, corridor at 50k, 30k, 25k, 12k steps/s a core.

Random play with full dynamics; a step includes observations, available actions and state, and the
resets of ended copies. The choice of the random actions is not counted. CPU seconds of the process,
the median of the rounds. Beside it SMAX of JaxMARL with 64 copies, on one thread, in rounds of the
same process by turns, if ``jaxmarl`` is installed; its loop of steps is compiled, and its actions
are drawn before, whether they are available or not. SMAX has no corridor. Exits with 1 if a map
falls short of its claim.

    OMP_NUM_THREADS=1 python benchmarks/smac_lite.py
"""

import argparse
import os
import statistics
import sys
import time
from contextlib import redirect_stdout
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from fullrank.environments.smac_lite.environment import SmacLite, SmacLiteConfig

CLAIMS = {"3m": 50_000, "2s3z": 30_000, "8m": 25_000, "corridor": 12_000}
"""Environment steps per second."""
COPIES = 64


STEPS = 200
"""Steps of a round."""


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


class Smax:
    """The same of SMAX, whose steps are compiled into one loop.

    Args:
        task: Map.

    Raises:
        ImportError: JaxMARL is not installed.
        KeyError: SMAX has no such map.
    """

    def __init__(self, task: str) -> None:
        os.environ["XLA_FLAGS"] = (
            "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        )
        with redirect_stdout(sys.stderr):  # its import prints
            import jax
            from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario

        environment = HeuristicEnemySMAX(scenario=map_name_to_scenario(task))
        self._jax, agents = jax, environment.agents
        choices = environment.action_space(agents[0]).n

        def step(carry: Any, drawn: Any) -> Any:
            state, key = carry
            key, own = jax.random.split(key)
            keys, actions = jax.random.split(own, COPIES), dict(zip(agents, drawn.T, strict=True))
            seen, state, *_ = jax.vmap(environment.step)(keys, state, actions)
            allowed = jax.vmap(environment.get_avail_actions)(state)
            parts = jax.tree.leaves((seen, allowed))
            return (state, key), sum(part.sum() for part in parts)

        key = jax.random.PRNGKey(0)
        _, state = jax.vmap(environment.reset)(jax.random.split(key, COPIES))
        self._carry = (state, key)
        shape = (STEPS, COPIES, len(agents))
        self._drawn = jax.random.randint(key, shape, 0, choices)
        self._loop = jax.jit(lambda carry, drawn: jax.lax.scan(step, carry, drawn))
        for _ in range(2):  # compiles, and again for the types of its own results
            self.speed()

    def speed(self) -> float:
        """Environment steps per CPU second."""
        start = time.process_time()
        self._carry, sums = self._loop(self._carry, self._drawn)
        self._jax.block_until_ready(sums)
        return STEPS * COPIES / (time.process_time() - start)


def smax_of(task: str) -> Smax | None:
    """SMAX on a map; None without JaxMARL, or without the map."""
    try:
        return Smax(task)
    except (ImportError, KeyError):
        return None


def measure(task: str, claim: int, rounds: int) -> bool:
    """Print the map's row; return whether its claim holds."""
    many, one, smax = Play(task, COPIES), Play(task, 1), smax_of(task)
    for play in (many, one):
        play.speed(50)  # warm up
    speeds, peers = list[float](), list[float]()
    for _ in range(rounds):
        speeds.append(many.speed(STEPS))
        if smax is not None:
            peers.append(smax.speed())
    single = statistics.median(one.speed(STEPS) for _ in range(rounds))
    middle = statistics.median(speeds)
    peer = f"{statistics.median(peers):,.0f} | {spread(peers)}" if peers else "- | -"
    print(f"| {task} | {single:,.0f} | {middle:,.0f} | {spread(speeds)} | {claim:,} | {peer} |")
    return middle >= claim


def spread(speeds: list[float]) -> str:
    """The slowest and the fastest round."""
    return f"{min(speeds):,.0f} to {max(speeds):,.0f}"


def main() -> int:
    """Measure all maps; return the exit status."""
    parser = argparse.ArgumentParser(description="Steps per CPU second of SMAC-lite.")
    parser.add_argument("--rounds", type=int, default=9, help="rounds, whose median counts")
    rounds = parser.parse_args().rounds
    print("| map | 1 copy | 64 copies | spread | claim | SMAX, 64 copies | spread |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    held = [measure(task, claim, rounds) for task, claim in CLAIMS.items()]
    if find_spec("jaxmarl") is None:
        print("\nSMAX is left out: JaxMARL is not installed (`pip install jaxmarl==0.2.0 jax`).")
    else:
        print(
            f"\nSMAX of JaxMARL {version('jaxmarl')}, JAX {version('jax')}. Steps per CPU second."
        )
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
