"""Claim: the model update takes 0.6 of the float32 peak, 0.7 with AVX-512, and is linear in units.

One thread, process CPU time, alternating with the peer, so that ratios survive a busy machine.

1. All 8 agents of cooperative navigation, sampling from 10^6 transitions and optimiser included, as
   a share of the float32 peak: multiplications over the time of the best of four updates, divided
   by the rate of a large product in the same round; the median of the rounds counts. Two shares are
   printed. That of *whole products* counts every entry of the observations; the claim is judged by
   it. That of *products done* leaves out the entries that are always zero, which Fullrank skips
   (ADR 48): it says how busy the processor is. Beside them TorchRL's DDPG loss wired as BenchMARL
   wires it, with observations that lack these entries as well (``torchrl_maddpg.py``; skipped if
   ``torchrl`` cannot be imported), and the bound on this processor: how many times as fast as the
   peer an update would be at the peak.
2. 32 agents of hidden width 1024, without entries that are always zero, against the float32 GEMM
   peak, measured in the same run.
3. The time for k of 8 units.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.maddpg import MADDPG
from fullrank.common.types import IntArray
from fullrank.environments import make_environment
from fullrank.environments.base import AgentSpec, Discrete
from fullrank.networks.fused.kernels import Kernel, is_float32
from fullrank.replay.layout import Layout
from fullrank.replay.samplers import Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.training.centralised import Centralised
from fullrank.training.mirror import Mirror

ACTIONS = 5
LEAST_SHARES = {True: 0.70, False: 0.60}
"""Share of the peak that the update of 8 agents has to reach, with AVX-512 and without."""
LEAST_SHARE = 0.70
LEAST_FIT = 0.98


@dataclass(frozen=True, slots=True)
class Workload:
    """M agents of equal shape; the last entries of an observation may be always zero."""

    agents: int
    observation: int
    hidden: int
    batch: int
    capacity: int
    zeros: int = 0

    def specs(self) -> tuple[AgentSpec, ...]:
        """Return the agents."""
        return tuple(
            AgentSpec(
                name=f"agent_{index}",
                observation_size=self.observation,
                action=Discrete(ACTIONS, relaxed=True),
                always_zero=tuple(range(self.observation - self.zeros, self.observation)),
            )
            for index in range(self.agents)
        )

    def gflop(self, *, zeros: bool) -> float:
        """Work of one update of all agents in GFLOP, 2 m n k a product, simultaneous semantics.

        Per transition and agent: target policy, target critic and critic forward; the critic's
        weight gradients and its input gradients except into the joint input; the policy forward;
        the critic forward once more with its first layer only for the own action; input gradients
        down to the own action alone; the policy's weight gradients and its input gradients except
        into the observation.

        Args:
            zeros: True to count multiplications by entries that are always zero.
        """
        own, h, a = self.observation - self.zeros * (not zeros), self.hidden, ACTIONS
        joint = self.agents * (own + a)
        policy, critic = own * h + h * h + h * a, joint * h + h * h + h
        critic_step = critic + critic + (critic + h * h + h)
        policy_step = policy + (a * h + h * h + h) + (h + h * h + h * a) + (policy + h * h + h * a)
        return 2e-9 * self.batch * self.agents * (policy + critic_step + policy_step)


NAVIGATOR = make_environment("cooperative_navigation", agents=8, copies=1).agents[0]
COOPERATIVE = Workload(
    agents=8,
    observation=NAVIGATOR.observation_size,
    zeros=len(NAVIGATOR.always_zero),
    hidden=64,
    batch=1024,
    capacity=1_000_000,
)
WIDE = Workload(agents=32, observation=192, hidden=1024, batch=512, capacity=2_000)


class Fullrank:
    """An algorithm, a replay table, and the two halves of an iteration.

    Args:
        load: Sizes.
        device: Device of the parameters.
        make: Builds the algorithm from its configuration.
    """

    def __init__(
        self, load: Workload, *, device: str = "cpu", make: Callable[..., Algorithm] = MADDPG.make
    ) -> None:
        config, environment = (
            MADDPG(batch_size=load.batch, hidden=load.hidden),
            EnvironmentSpec(agents=load.specs()),
        )
        self.algorithm = make(config, environment, seed=0, device=device)
        self._table = _table(load, environment.layout)
        self._decoded = np.zeros((load.agents, self.algorithm.problem.vector_size), np.float32)
        self._load, self._iteration = load, 0
        self._together = Centralised(self.algorithm.problem, self.algorithm.gradients, seed=0)
        there = self._together.mirrored
        self._mirror = None if there is None else Mirror(self._table, there)

    def _positions(self) -> IntArray:
        """Draw the positions of the next minibatch."""
        self._iteration += 1
        sample = Sample(
            table="transitions",
            seed=0,
            iteration=self._iteration,
            tail=0,
            head=self._table.head,
            size=self._load.batch,
        )
        return sample.positions()

    def learn(self, units: Sequence[int]) -> None:
        """Run a learner's half: gather the minibatch, compute the units."""
        batch = self._table.gather(self._positions())
        for unit, update in self.algorithm.gradients.compute(
            batch, units, iteration=self._iteration
        ):
            self._decoded[unit, : len(update)] = update

    def apply(self) -> None:
        """The controller's half: the optimiser and the targets."""
        self.algorithm.optimiser.step(self._decoded)

    def update(self) -> None:
        """Run both halves for all units, on CUDA as a run in one process, where updates stay."""
        if self._mirror is None:
            self.learn(range(self._load.agents))
            self.apply()
            return
        batch = self._mirror.gather(self._positions())
        targets = self._together.compute(batch, iteration=self._iteration)
        self.algorithm.optimiser.step(targets.updates)


def _table(load: Workload, layout: Layout) -> Table:
    generator = np.random.default_rng(0)
    storage = MemoryStorage(load.capacity, layout.row_size)
    for block in np.array_split(storage.rows, max(1, load.capacity // 10_000)):
        block[:] = generator.standard_normal(block.shape, dtype=np.float32)
        block[:, layout.action] = 1.0 / ACTIONS
        block[:, layout.terminated], block[:, layout.alive] = 0.0, 1.0
    storage.publish(0, load.capacity)
    return Table(storage, capacity=load.capacity)


def cpu_time_s(action: Callable[[], object]) -> float:
    """Process CPU time of one call."""
    start = time.process_time()
    action()
    return time.process_time() - start


def gemm_peak() -> float:
    """Measure the float32 peak in GFLOP/s: 2048^3 under every exact kernel, best of five."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = float("inf")
    for kernel in (Kernel("default"), Kernel("onednn")):
        if is_float32(kernel):
            with kernel.active():
                best = min(best, *(cpu_time_s(lambda: torch.mm(a, b)) for _ in range(5)))
    return 2 * 2048**3 / best / 1e9


def claim(what: str, *, holds: bool) -> bool:
    """Print one line and return ``holds``."""
    print(f"\nclaim: {what}: {'holds' if holds else 'FAILS'}\n")
    return holds


def torchrl(load: Workload, *, device: str = "cpu") -> Callable[[], None]:
    """Return an update of the whole team by TorchRL.

    It is given the entries of the observations that Fullrank multiplies by.
    """
    from torchrl_maddpg import make_update

    return make_update(
        agents=load.agents,
        observation=load.observation - load.zeros,
        actions=ACTIONS,
        hidden=load.hidden,
        batch=load.batch,
        capacity=load.capacity,
        device=device,
    )


def all_agents(rounds: int) -> bool:
    """Judge claim 1, the share of the peak; print TorchRL's share and the bound beside it."""
    load = COOPERATIVE
    players = {"fullrank": Fullrank(load).update}
    if importlib.util.find_spec("torchrl"):
        players["TorchRL"] = torchrl(load)
    whole, done = load.gflop(zeros=True), load.gflop(zeros=False)
    peaks, times = list[float](), {name: list[float]() for name in players}
    shares = {name: list[float]() for name in players}
    for number in range(rounds + 1):
        peak = gemm_peak()
        for name, update in players.items():
            several = [cpu_time_s(update) for _ in range(4)]
            if number:  # after a round to warm up
                times[name] += several
                shares[name].append(whole / min(several) / peak)
        peaks += [peak] * bool(number)
    instructions, peak = torch.backends.cpu.get_cpu_capability(), statistics.median(peaks)
    print(f"{instructions}, float32 peak {peak:.0f} GFLOP/s ({min(peaks):.0f} to {max(peaks):.0f})")
    print(f"{whole:.2f} GFLOP an update, {done:.2f} without entries that are always zero\n")
    print("| all 8 agents | ms, median | spread | share of the peak, whole | products done |")
    print("| --- | --- | --- | --- | --- |")
    for name, values in times.items():
        median = statistics.median(values)
        spread = f"{min(values) * 1e3:.1f} to {max(values) * 1e3:.1f}"
        share = statistics.median(shares[name])
        busy = share * done / whole
        print(f"| {name} | {median * 1e3:.1f} | {spread} | {share:.2f} | {busy:.2f} |")
    if "TorchRL" in times:
        ratio = statistics.median(times["TorchRL"]) / statistics.median(times["fullrank"])
        bound = whole / done / statistics.median(shares["TorchRL"])
        print(
            f"\nTorchRL takes {ratio:.2f} times as long on the same entries; the bound on this "
            f"processor is {bound:.1f}"
        )
    else:
        print("\nno peer: `pip install torchrl tensordict` to compare")
    least, share = LEAST_SHARES["AVX512" in instructions], statistics.median(shares["fullrank"])
    return claim(
        f"all agents reach {least:.0%} of the peak, whole products counted, measured {share:.0%}",
        holds=share >= least,
    )


def against_peak(rounds: int) -> bool:
    """Judge claim 2 on the learners' half; print the controller's half, too."""
    team, peaks = Fullrank(WIDE), []
    units, optimiser = [], []
    team.update()
    for _ in range(rounds):
        peaks.append(gemm_peak())
        units.append(cpu_time_s(lambda: team.learn(range(WIDE.agents))))
        optimiser.append(cpu_time_s(team.apply))
    peak, gflop = max(peaks), WIDE.gflop(zeros=False)
    print("| 32 agents, hidden 1024, batch 512 | s, median | GFLOP/s | of peak |")
    print("| --- | --- | --- | --- |")
    print(f"| float32 GEMM peak | | {peak:.0f} | 1.00 |")
    unit_s = statistics.median(units)
    whole_s = unit_s + statistics.median(optimiser)
    for name, time_s in (("units", unit_s), ("units, Adam and targets", whole_s)):
        print(f"| {name} | {time_s:.2f} | {gflop / time_s:.0f} | {gflop / time_s / peak:.2f} |")
    share = gflop / unit_s / peak
    return claim(
        f"units reach {LEAST_SHARE:.0%} of the peak, measured {share:.0%}",
        holds=share >= LEAST_SHARE,
    )


def per_unit(rounds: int) -> bool:
    """Judge claim 3; all units share the intercept: the sample and M target actions."""
    team = Fullrank(replace(COOPERATIVE, capacity=50_000))
    times: dict[int, list[float]] = {count: [] for count in (1, 2, 3, 4, 6, 8)}
    for _ in range(3 * rounds):
        for count, values in times.items():
            values.append(cpu_time_s(partial(team.learn, range(count))))
    medians = {count: statistics.median(values[1:]) for count, values in times.items()}
    counts, seconds = np.array(list(medians)), np.array(list(medians.values()))
    slope, shared = np.polyfit(counts, seconds, 1)
    fit = float(np.corrcoef(counts, seconds)[0, 1] ** 2)
    print("| k of 8 units | ms, median | T(k)/T(8) 8/k |\n| --- | --- | --- |")
    for count, second in medians.items():
        print(f"| {count} | {second * 1e3:.2f} | {second / seconds[-1] * 8 / count:.2f} |")
    print(f"\n{slope * 1e3:.2f} ms a unit, {shared * 1e3:.2f} ms shared by all units")
    return claim(f"linear in k, R^2 {fit:.4f}, at least {LEAST_FIT}", holds=fit >= LEAST_FIT)


def main() -> int:
    parser = argparse.ArgumentParser(description="The model update against peers and limits.")
    parser.add_argument("--rounds", type=int, default=5, help="alternations, the median counts")
    parser.add_argument("--without-wide", action="store_true", help="skip claim 2 (10 GB)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    holds = [all_agents(chosen.rounds), per_unit(chosen.rounds)]
    if not chosen.without_wide:
        holds.append(against_peak(max(1, chosen.rounds // 2)))
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
