"""Claim: ranks receive the bytes of the formula, by agents five times fewer than by transitions.

The ratio is claimed for 32 agents and networks of width 1,024, as in multi-GPU MADDPG (paper 004),
and for exact additions as for fast ones; the bytes of a run are counted at smaller sizes. Beside
them stands how much faster an update is with two ranks than with one, for both splits, by wall
time: over gloo, on the same minibatches, with the same bits. Other work on the machine distorts it.

    OMP_NUM_THREADS=1 python benchmarks/ranks.py
"""

import argparse
import os
import time
from collections.abc import Sequence

import numpy as np
import torch

from fullrank.algorithms import Problem, algorithms
from fullrank.config import RunConfig, load
from fullrank.config.plugins import spec_of
from fullrank.training.centralised import Centralised
from fullrank.training.ranks import Split, received_bytes
from fullrank.training.worker import probe_batch
from fullrank.wiring.training import training_of
from fullrank_controller.local.ranks import ranks_of

HIDDEN, WARM, TIMED = 128, 2, 12
SIZES = ((3, 256), (3, 1024), (8, 256), (8, 1024), (8, 4096), (16, 1024))
"""Agents and batch sizes."""
SMOKE = ((2, 8),)
SPLITS: tuple[Split, ...] = ("agents", "transitions")


def config_of(agents: int, batch: int, hidden: int, *ranks: str) -> RunConfig:
    """The configuration of a Rover Tower, whose minibatch has two parts."""
    sizes = (f"environment.agents={agents + agents % 2}", f"algorithm.batch_size={batch}")
    fixed = ("environment.name=rover_tower", "compute.device=cpu", "environment.copies=1")
    parts = (f"algorithm.hidden={hidden}", "algorithm.micro_batches=2")
    return load(environ={}, overrides=[*sizes, *fixed, *parts, *ranks]).check().config


def measure(config: RunConfig, updates: int) -> tuple[float, float, list[bytes]]:
    """Least seconds of an update, bytes that a rank of two received in each, and the digests."""
    torch.set_num_threads(1)
    training = training_of(config)
    problem, seconds = training.problem, list[float]()
    digests: list[bytes] = []
    with ranks_of(config, training) as group:
        alone = Centralised(problem, training.algorithm.gradients, seed=config.seed)
        batch = probe_batch(problem, spec_of(config).layout, seed=config.seed)
        for iteration in range(WARM + updates):
            began = time.perf_counter()
            targets = (group or alone).compute(batch, iteration=iteration)
            training.trainer.apply(targets.updates, iteration=iteration)
            digests += targets.digests  # one process makes them here
            seconds.append(time.perf_counter() - began)
        wire = None if group is None else group.wire
    moved = 0.0
    if wire is not None:  # what rank 0 sent, rank 1 received
        moved = (wire.received_bytes + wire.sent_bytes) / 2 / (WARM + updates)
    training.collector.close()
    return min(seconds[WARM:]), moved, digests


def large() -> Problem:
    """Sizes of the paper: 32 agents of Rover Tower, networks of width 1,024."""
    config = config_of(32, 1024, 1024)
    return algorithms.build("maddpg", **config.algorithm.params).problem(spec_of(config))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true", help="one tiny size, few updates")
    smoke = parser.parse_args(arguments).smoke
    hidden, updates = (16, 1) if smoke else (HIDDEN, TIMED)
    print("| agents | B | one, ms | by agents | MB (formula) | by transitions | MB (formula) |")
    print("|---|---|---|---|---|---|---|")
    holds = True
    for agents, batch in SMOKE if smoke else SIZES:
        one_s, _, expected = measure(config_of(agents, batch, hidden), updates)
        cells = []
        for split in SPLITS:
            config = config_of(agents, batch, hidden, "ranks.count=2", f"ranks.split={split}")
            two_s, moved, digests = measure(config, updates)
            problem = algorithms.build("maddpg", **config.algorithm.params).problem(spec_of(config))
            formula = received_bytes(problem, 2, split)
            cells += [f"{one_s / two_s:.2f}x", f"{moved / 1e6:.2f} ({formula / 1e6:.2f})"]
            holds &= digests == expected and bool(np.isclose(moved, formula, rtol=1e-12))
        shown = agents + agents % 2
        print(f"| {shown} | {batch} | {1e3 * one_s:.1f} | {' | '.join(cells)} |", flush=True)
    ours = received_bytes(large(), 2, "agents")
    exact, fast = (
        received_bytes(large(), 2, "transitions", exact=exact) for exact in (True, False)
    )
    print(
        f"\nA rank of two at 32 agents and width 1,024 receives {ours / 1e9:.3f} GB an update by "
        f"agents, {exact / 1e9:.3f} GB by transitions ({exact / ours:.1f}x), "
        f"{fast / 1e9:.3f} GB by fast additions ({fast / ours:.1f}x). Times are the least of "
        f"{updates} updates, at a load of {os.getloadavg()[0]:.0f} at the end."
    )
    return int(not (holds and fast >= 5 * ours))


if __name__ == "__main__":
    raise SystemExit(main())
