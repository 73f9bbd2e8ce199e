"""Claim: on one device a unit's bits do not depend on company, and equal the CPU's up to 1e-5.

For a host with a CUDA device: ``make gpu`` runs it, ``make bench ARGS=one_device`` also writes its
section. A CPU runs small sizes (``--device cpu``). Teams have the sizes of Rover Tower, networks
the width of multi-GPU MADDPG (paper 004). All times are wall times of whole updates, sample and
optimiser included.

1. Bits of units alone, in threes, and all together; errors against the CPU, relative to the largest
   entry.
2. Agent-updates a second by agents and minibatch, and their share of the device's float32 peak, the
   rate of a large product in the same process. Beside them the same update agent by agent, by
   autograd, and TorchRL's (``torchrl_maddpg.py``; skipped if ``torchrl`` cannot be imported).

    python benchmarks/one_device.py
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from fast_update import Fullrank, Workload, torchrl
from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.maddpg import MADDPG
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments import make_environment
from fullrank.networks.fused.kernels import Kernel
from fullrank.training.worker import probe_batch

NEAR = 1e-5
"""Largest error against the CPU, relative to the largest entry of a unit."""
SIZES = {
    "cuda": ((8, 16, 32, 64), (512, 1024, 2048, 4096), 1024, 8192),
    "cpu": ((4, 8), (128, 512), 64, 1024),
}
"""Agents, minibatches, width of the networks, and side of the matrices whose product is the peak;
those of a CPU only show that the program runs."""
CAPACITY = 10_000
"""Transitions in the tables that minibatches are drawn from."""


def workload(agents: int, batch: int, hidden: int) -> Workload:
    """Alike agents that see as much as the rovers of a Rover Tower."""
    tower = make_environment("rover_tower", agents=agents, copies=1)
    observation = max(agent.observation_size for agent in tower.agents)
    return Workload(
        agents=agents, observation=observation, hidden=hidden, batch=batch, capacity=CAPACITY
    )


def seconds(action: Callable[[], object], device: torch.device, *, rounds: int) -> float:
    """Median wall time of a call, the device's work included, after one that warms up."""
    times = []
    for _ in range(1 + rounds):
        _wait(device)
        began = time.perf_counter()
        action()
        _wait(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(device: torch.device, *, size: int) -> float:
    """Rate of a product of two float32 matrices, GFLOP/s."""
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    with Kernel("default").active():
        return 2e-9 * size**3 / seconds(lambda: torch.mm(a, b), device, rounds=5)


def errors(load: Workload, device: str) -> tuple[bool, float]:
    """Whether no unit's bits depend on company, and the largest error against the CPU."""
    config, environment = _config(load), EnvironmentSpec(agents=load.specs())
    here = config.make(environment, seed=0, device="cpu")
    there = config.make(environment, seed=0, device=device)
    batch = probe_batch(here.problem, environment.layout, seed=0)
    every = range(load.agents)
    together = dict(_computed(there, batch, every))
    chosen = sorted({0, load.agents // 2, load.agents - 1})
    companies = [*([unit] for unit in chosen), chosen[::-1], [*every][::-1]]
    equal = all(
        np.array_equal(update, together[unit])
        for company in companies
        for unit, update in _computed(there, batch, company)
    )
    error = max(
        float(np.abs(together[unit] - update).max() / np.abs(update).max())
        for unit, update in _computed(here, batch, chosen)
    )
    return equal, error


def _config(load: Workload) -> MADDPG:
    return MADDPG(batch_size=load.batch, hidden=load.hidden)


def _computed(
    algorithm: Algorithm, batch: FloatArray, units: Sequence[int]
) -> Iterator[tuple[int, FloatArray]]:
    return algorithm.gradients.compute(batch, units, iteration=0)


def players(load: Workload, device: str) -> dict[str, Callable[[], object]]:
    """An update of the whole team by each player."""
    return {
        "fullrank": Fullrank(load, device=device).update,
        "agent by agent": Fullrank(load, device=device, make=ActorCritic.make).update,
        **torchrl(load, device=device),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The update on one device.")
    parser.add_argument("--device", default="auto", help="cuda, cuda:K, cpu or auto")
    parser.add_argument("--rounds", type=int, default=5, help="updates, the median counts")
    chosen = parser.parse_args(arguments)
    try:
        device = device_of(chosen.device, setting="--device")
    except ConfigError as error:
        parser.error(str(error))
    if device.type == "cpu":
        torch.set_num_threads(1)
    agents, batches, hidden, side = SIZES[device.type]
    rate, name = peak(device, size=side), str(device)
    print(f"{_named(device)}: float32 peak {rate:,.0f} GFLOP/s; networks of width {hidden}\n")
    holds = _errors([workload(M, batches[0], hidden) for M in agents], name)
    _rates(
        [workload(M, B, hidden) for M in agents for B in batches],
        device,
        rate=rate,
        rounds=chosen.rounds,
    )
    return int(not holds)


def _errors(loads: Sequence[Workload], device: str) -> bool:
    print("| agents | B | equal bits in any company | error against the CPU |\n|---|---|---|---|")
    holds = True
    for load in loads:
        equal, error = errors(load, device)
        holds &= equal and error <= NEAR
        print(f"| {load.agents} | {load.batch} | {'yes' if equal else 'NO'} | {error:.1e} |")
    return holds


def _rates(loads: Sequence[Workload], device: torch.device, *, rate: float, rounds: int) -> None:
    print("\n| agents | B | player | ms | agent-updates/s | share of the peak |")
    print("|---|---|---|---|---|---|")
    for load in loads:
        for name, update in players(load, str(device)).items():
            update_s = seconds(update, device, rounds=rounds)
            share = load.gflop(zeros=False) / update_s / rate
            print(
                f"| {load.agents} | {load.batch} | {name} | {1e3 * update_s:.2f} "
                f"| {load.agents * load.batch / update_s:,.0f} | {share:.2f} |",
                flush=True,
            )
    print()


def _named(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "one CPU thread"


if __name__ == "__main__":
    raise SystemExit(main())
