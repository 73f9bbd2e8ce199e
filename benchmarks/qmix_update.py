"""Claim: QMIX's gradient in one unit costs less than TorchRL's, and 8 units cost what one does.

One thread, process CPU time, alternating with the peer, so that ratios survive a busy machine. A
batch has 32 episodes of random data at the sizes of two SMAC maps.

1. One update, the gradient of one unit and the optimiser, against TorchRL's ``QMixerLoss`` with a
   recurrent agent on 3m (``torchrl_qmix.py``; skipped if ``torchrl`` cannot be imported), which
   learns without double Q-learning and masks, and whose hypernetworks of weights have one layer,
   as Fullrank's have beside it. TorchRL reads padded tensors; Fullrank's time includes padding
   packed rows and snapping to the grid.
2. The price of units: 8 units computed together against one.
3. Episodes of 15 to 60 steps against episodes of 60 steps alone: TorchRL pads to the longest.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.qmix import QMIX
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Discrete
from fullrank.replay.episodes import EpisodeLayout
from fullrank.training.centralised import Centralised

EPISODES, HIDDEN, UNITS = 32, 64, 8
MOST_PRICE = 1.15
DEFAULT, ONE_LAYER = "1 unit", "1 unit, hypernetworks of one layer"
LEAST_SPEED = 1.5
"""Least speed relative to TorchRL, with hypernetworks of one layer, on the first workload."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A team and the length of its episodes."""

    name: str
    agents: int
    observation: int
    state: int
    actions: int
    steps: int

    @property
    def inputs(self) -> int:
        """Entries of an agent's input: observation, last action, identity."""
        return self.observation + self.actions + self.agents


WORKLOADS = (
    Workload("3m", agents=3, observation=30, state=48, actions=9, steps=60),
    Workload("2s3z", agents=5, observation=80, state=120, actions=11, steps=120),
)


def episodes(layout: EpisodeLayout, lengths: list[int]) -> FloatArray:
    """Return random episodes of the given lengths; every action is available."""
    generator = np.random.default_rng(0)
    ends = np.cumsum(np.array(lengths) + 1) - 1
    rows = generator.standard_normal((int(ends[-1]) + 1, layout.row_size), dtype=np.float32)
    rows[:, layout.available] = 1.0
    rows[:, layout.action] = generator.integers(0, layout.action_sizes, (len(rows), layout.agents))
    rows[:, layout.terminated] = rows[:, layout.length] = 0.0
    rows[ends, layout.length] = lengths
    return rows


def make_update(
    load: Workload,
    *,
    units: int,
    lengths: list[int],
    hypernet_layers: int = 2,
    device: str = "cpu",
) -> Callable[[], None]:
    """Return one update: the gradients of all units, their sum and the optimiser's step.

    On a device it is what a run in one process does there, with digests and reports.
    """
    agents = tuple(
        AgentSpec(
            name=f"agent_{i}",
            observation_size=load.observation,
            action=Discrete(load.actions),
        )
        for i in range(load.agents)
    )
    config = QMIX(
        batch_size=len(lengths), hidden=HIDDEN, micro_batches=units, hypernet_layers=hypernet_layers
    )
    environment = EnvironmentSpec(agents=agents, state_size=load.state)
    algorithm = config.make(environment, seed=0, device=device)
    layout = algorithm.problem.episodes
    assert layout is not None
    rows = episodes(layout, lengths)
    central = Centralised(algorithm.problem, algorithm.gradients, seed=0)

    def update_there() -> None:
        algorithm.optimiser.step(central.compute(rows, iteration=0).updates)

    def update() -> None:
        computed = algorithm.gradients.compute(rows, range(units), iteration=0)
        updates = np.stack([own for _, own in computed])
        total = updates.sum(axis=0, keepdims=True, dtype=np.float64)
        algorithm.optimiser.step(total.astype(np.float32))

    return update if device == "cpu" else update_there


def medians(updates: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return the median CPU time of each update in seconds, alternating between them."""
    times: dict[str, list[float]] = {name: [] for name in updates}
    for number in range(rounds + 1):
        for name, update in updates.items():
            start = time.process_time()
            update()
            if number:  # the first round warms up
                times[name].append(time.process_time() - start)
    return {name: statistics.median(own) for name, own in times.items()}


def measure(load: Workload, rounds: int) -> bool:
    """Print the figures of a workload; returns whether the claims hold."""
    full = [load.steps] * EPISODES
    spread = np.linspace(load.steps // 4, load.steps, EPISODES).astype(int).tolist()
    updates = {
        "8 units": make_update(load, units=UNITS, lengths=full),
        DEFAULT: make_update(load, units=1, lengths=full),
        ONE_LAYER: make_update(load, units=1, lengths=full, hypernet_layers=1),
        "8 units, lengths 1:4": make_update(load, units=UNITS, lengths=sorted(spread)),
    }
    if importlib.util.find_spec("torchrl"):
        from torchrl_qmix import make_update as make_torchrl_update

        updates["torchrl"] = make_torchrl_update(
            agents=load.agents,
            inputs=load.inputs,
            state=load.state,
            actions=load.actions,
            episodes=EPISODES,
            steps=load.steps,
            hidden=HIDDEN,
        )
    else:
        print("torchrl cannot be imported: the comparison is skipped")
    seconds = medians(updates, rounds)
    for name, own in seconds.items():
        print(f"* {load.name}: {name}: {1e3 * own:.0f} ms")
    price = seconds["8 units"] / seconds[DEFAULT]
    print(f"* {load.name}: 8 units cost {price:.2f} times one unit (at most {MOST_PRICE})")
    holds = price <= MOST_PRICE
    if "torchrl" in seconds:
        like, default = (seconds["torchrl"] / seconds[ours] for ours in (ONE_LAYER, DEFAULT))
        print(
            f"* {load.name}: {like:.2f} times as fast as torchrl in {ONE_LAYER} (on 3m at least ",
            end="",
        )
        print(f"{LEAST_SPEED}), {default:.2f} times in {DEFAULT}")
        holds &= load is not WORKLOADS[0] or like >= LEAST_SPEED
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description="The update of QMIX against TorchRL's.")
    parser.add_argument("--rounds", type=int, default=5, help="alternations, the median counts")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    holds = [measure(load, chosen.rounds) for load in WORKLOADS]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
