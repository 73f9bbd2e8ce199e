"""Claim: hedged rounds reach 0.98 of the best exact way to wait in 36 of 40 kinds of lateness.

Simulated, N = M = 8 and 16, a machine for each unit, times in units: the time of a round by hedging
is compared with that of no code, of the cyclic and the fractional code at their best tolerance, and
of a restart of the late units on idle machines at 1.2 medians. All see the same draws, but that a
restarted unit has new ones, as if its machine were another. Learners jitter by 10 %.

With ``--processes`` services run with emulated and real units, by turns with and without hedging;
with ``--cpu`` calm services with units of about a millisecond, whose controller is to take at most
1.05 of its CPU without hedging.

    python benchmarks/hedged_rounds.py --processes 120 --cpu 200
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import numpy as np
import psutil

from fullrank.codes import codes
from fullrank.codes.learner_codes import code_for_learners
from fullrank.codes.targets import sum_of_units
from fullrank.common.types import Times
from fullrank.config import load
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.planning.arrival import arrivals_of
from fullrank.planning.grace import Grace, Return
from local_services import cpu_s, start, train

ROUNDS, JITTER, RESTART = 400, 0.1, 1.2
KINDS: Mapping[str, tuple[str, float, float]] = {
    "calm": ("delay", 0.0, 0.0),
    "2 %, +10": ("delay", 0.02, 10.0),
    "5 %, +2": ("delay", 0.05, 2.0),
    "5 %, +10": ("delay", 0.05, 10.0),
    "10 %, +1": ("delay", 0.1, 1.0),
    "20 %, +5": ("delay", 0.2, 5.0),
    "exponential 0.2": ("exponential", 0.2, 0.0),
    "exponential 1": ("exponential", 1.0, 0.0),
    "exponential 5": ("exponential", 5.0, 0.0),
    "Pareto 0.1, 2": ("pareto", 0.1, 2.0),
    "Pareto 0.1, 1.2": ("pareto", 0.1, 1.2),
    "Pareto 0.5, 1.5": ("pareto", 0.5, 1.5),
    "5 % x1.5": ("slow", 0.05, 1.5),
    "5 % x3": ("slow", 0.05, 3.0),
    "5 % x10": ("slow", 0.05, 10.0),
    "exponential factor 0.2": ("factor", 0.2, 0.0),
    "exponential factor 1": ("factor", 1.0, 0.0),
    "one always x2": ("machines", 1, 2.0),
    "one always x10": ("machines", 1, 10.0),
    "two always x3": ("machines", 2, 3.0),
}
"""Law and its parameters; those of ``delay`` are added, the others of time multiply."""


def draws(kind: tuple[str, float, float], learners: int, seed: int) -> tuple[Times, Times]:
    """Delay before the first unit and time of a unit, shape (ROUNDS, learners)."""
    law, first, second = kind
    rng, shape = np.random.default_rng(seed), (ROUNDS, learners)
    delay, unit = np.zeros(shape), np.ones(shape)
    if law == "delay":
        delay = np.where(rng.random(shape) < first, second, 0.0)
    elif law == "exponential":
        delay = rng.exponential(first, shape)
    elif law == "pareto":
        delay = first * (1.0 - rng.random(shape)) ** (-1.0 / second)
    elif law == "slow":
        unit = np.where(rng.random(shape) < first, second, 1.0)
    elif law == "factor":
        unit = 1.0 + rng.exponential(first, shape)
    else:
        unit[:, : int(first)] = second
    return delay, unit * np.exp(JITTER * rng.standard_normal(shape) - JITTER**2 / 2)


def coded(name: str, delay: Times, unit: Times) -> float:
    """Mean time of a round by a code of a sum, at its best tolerance."""
    learners, means = delay.shape[1], [inf]
    for tolerance in (1, 2, 3, 5, 7):
        family = codes.build(name, tolerance=tolerance)
        if name == "fractional" and learners % (tolerance + 1):
            continue
        code = code_for_learners(
            family, learners=learners, units=learners, target=sum_of_units(learners)
        )
        times = code.load * unit + delay
        order = np.argsort(times, axis=1, kind="stable")
        needed = arrivals_of(code, inf, 1).needed(order)
        means.append(float(np.take_along_axis(times, order, 1)[range(ROUNDS), needed - 1].mean()))
    return min(means)


def restarted(finish: Times, again: Times) -> float:
    """Mean time of a round in which late units begin anew on the machines that are idle first."""
    ends = []
    for times, anew in zip(finish, again, strict=True):
        cut = RESTART * float(np.median(times))
        late, idle = np.flatnonzero(times > cut), np.argsort(times)[: np.sum(times <= cut)]
        turns = [divmod(turn, len(idle)) for turn in range(len(late))]
        copies = [cut + anew[idle[place]] * (1 + turn) for turn, place in turns]
        own = times[times <= cut].max()
        ends.append(max([own, *np.minimum(times[late], copies)]))
    return fmean(ends)


def hedged(finish: Times, unit: Times) -> float:
    """Mean time of a hedged round."""
    grace = Grace()
    rounds = zip(finish.tolist(), unit.tolist(), strict=True)
    return fmean(
        grace.play(sorted(Return(*each, 1) for each in zip(*times, strict=True)))
        for times in rounds
    )


def bound(delay: Times, unit: Times) -> float:
    """Mean time of a round in which no machine is idle, and work is cut as finely as one likes.

    It is the least over k of the time in which the first k machines to begin would do all work.
    """
    order = np.argsort(delay, axis=1)
    speeds = 1.0 / np.take_along_axis(unit, order, 1)
    lost = np.cumsum(np.take_along_axis(delay, order, 1) * speeds, axis=1)
    times = (delay.shape[1] + lost) / np.cumsum(speeds, axis=1)
    return float(times.min(axis=1).mean())


Simulated: TypeAlias = dict[tuple[int, str], tuple[float, ...]]
"""Mean times by N and kind: no code, cyclic, fractional, restart, hedged, and the bound."""


def simulated() -> Simulated:
    """Print every kind."""
    print("| N | lateness | no code | cyclic | fractional | restart | hedged | bound | best |")
    print("|---|---|---|---|---|---|---|---|---|")
    found: Simulated = {}
    for learners in (8, 16):
        for name, kind in KINDS.items():
            delay, unit = draws(kind, learners, 1)
            anew_delay, anew_unit = draws(kind, learners, 2)
            finish = delay + unit
            found[learners, name] = times = (
                float(finish.max(axis=1).mean()),
                coded("cyclic", delay, unit),
                coded("fractional", delay, unit),
                restarted(finish, anew_delay + anew_unit),
                hedged(finish, unit),
                bound(delay, unit),
            )
            cells = " | ".join(f"{each:.2f}" for each in (*times, min(times[:4]) / times[4]))
            print(f"| {learners} | {name} | {cells} |", flush=True)
    return found


def plot(found: Simulated, path: Path) -> None:
    """Draw the kinds of N = 8 as multiples of the bound."""
    import matplotlib.pyplot as plt

    times = np.array([found[8, name] for name in KINDS])
    times /= times[:, 5:]
    drawn = {
        "no code": (times[:, 0], "s", "#9aa0a6"),
        "the better of two codes": (times[:, 1:3].min(axis=1), "D", "#e08a3c"),
        "hedged": (times[:, 4], "o", "#1f6fb2"),
    }
    figure, axes = plt.subplots(figsize=(7.5, 5.2), layout="constrained")
    places = np.arange(len(KINDS))
    axes.hlines(places, 1.0, times[:, :5].max(axis=1), color="#e6e8ea", zorder=1)
    for label, (values, marker, colour) in drawn.items():
        axes.scatter(values, places, marker=marker, color=colour, label=label, s=30, zorder=2)
    axes.set_yticks(places, list(KINDS))
    axes.set(xscale="log", xlabel="time of a round, multiples of that of machines never idle")
    axes.set_xticks([1, 2, 3, 5, 9], ["1", "2", "3", "5", "9"])
    axes.minorticks_off()
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(path, dpi=130)


EMULATED = (
    *("environment.name=cooperative_navigation", "environment.agents=8", "environment.copies=1"),
    *("collect.steps=8", "algorithm.batch_size=32", "algorithm.hidden=16"),
    "compute.emulate_unit_s=0.05",
)
CALM = (
    *("environment.name=cooperative_navigation", "environment.copies=1", "collect.steps=8"),
    *("algorithm.batch_size=32", "algorithm.hidden=16", "code.name=uncoded", "audit.every=0"),
    "metrics.sinks=[]",
)
MADDPG = (
    *("environment.name=cooperative_navigation", "environment.agents=8", "environment.copies=1"),
    *("collect.steps=8", "algorithm.batch_size=1024", "algorithm.hidden=256"),
)
QMIX = (
    *("environment.name=smac_lite", "algorithm.name=qmix", "environment.copies=1"),
    *("algorithm.batch_size=64", "algorithm.micro_batches=8", "collect.warmup_episodes=64"),
)
LATE = ("name=bernoulli", "probability=0.05", "delay_s=0.5")
SLOW = ("name=slow_learners", "k=1", "factor=10.0")
RUNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "calm, units of 50 ms": (EMULATED, ()),
    "5 % late by 500 ms, units of 50 ms": (EMULATED, LATE),
    "one machine ten times slower, units of 50 ms": (EMULATED, SLOW),
    "calm, units of MADDPG": (MADDPG, ()),
    "calm, units of QMIX": (QMIX, ()),
}


def processes(iterations: int) -> None:
    """Print iterations of services, which wait and hedge by turns."""
    print("\n| by processes, N = M = 8 | a unit, ms | waits, ms | hedged, ms | ratio |")
    print("|---|---|---|---|---|")
    for name, (work, stragglers) in RUNS.items():
        means: dict[str, list[float]] = {"wait": [], "hedge": []}
        units = []
        for policy in ("wait", "hedge") * 2:
            settings = (
                *("learners=8", "code.name=uncoded", "audit.every=0", f"iterations={iterations}"),
                *(f"stragglers.{each}" for each in stragglers),
                *(f"controller.undecodable={policy}", *work),
            )
            with tempfile.TemporaryDirectory() as scratch:
                records, _ = train(Path(scratch) / "run", settings)
            means[policy].append(1e3 * fmean(each.iteration_s or 0.0 for each in records[10:]))
            units += [1e3 * min(each.compute_s.values()) for each in records[10:]]
        waits, ours = (fmean(each) for each in means.values())
        cells = f"{np.median(units):.0f} | {waits:.1f} | {ours:.1f} | {waits / ours:.2f}"
        print(f"| {name} | {cells} |", flush=True)


def cpu_of_calm_rounds(iterations: int) -> bool:
    """Print CPU of services in calm rounds, by turns; true if the controller's ratio holds."""
    print("\n| calm, N = M | controller waits, ms | hedges, ms | ratio | learners, ms | ms |")
    print("|---|---|---|---|---|---|")
    holds = True
    for learners in (8, 16, 32):
        spent: dict[str, list[tuple[float, float]]] = {"wait": [], "hedge": []}
        for policy in ("wait", "hedge") * 2:
            agents = f"environment.agents={learners}"
            settings = (*CALM, agents, f"learners={learners}", f"controller.undecodable={policy}")
            spent[policy].append(cpu_ms(settings, iterations * 8 // learners))
        waits, ours = (fmean(each for each, _ in spent[policy]) for policy in spent)
        others = (fmean(each for _, each in spent[policy]) for policy in spent)
        rest = " | ".join(f"{each:.1f}" for each in others)
        print(
            f"| {learners} | {waits:.1f} | {ours:.1f} | {ours / waits:.2f} | {rest} |", flush=True
        )
        holds &= ours / waits <= 1.05
    return holds


def cpu_ms(settings: Sequence[str], iterations: int) -> tuple[float, float]:
    """CPU of the controller and of the learners in an iteration, after the first 20, ms."""
    resolved = load(overrides=[*settings, f"iterations={iterations + 20}"])
    spent: list[tuple[int, float, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch) / "run"
        names = ("learner", "controller", "replay")
        started = {name: start(name, resolved, run_dir) for name in names}
        controller, learners = (
            psutil.Process(started[name].pid) for name in ("controller", "learner")
        )
        try:
            with StatusPoller(run_dir, resolved.config) as watch:
                while (status := watch.status()).state is not RunState.FINISHED:
                    if status.committed >= 20:
                        spent.append((status.committed, cpu_s(controller), cpu_s(learners)))
                    time.sleep(0.1)
        finally:
            for process in started.values():
                process.terminate()
                process.join()
    (first, *before), (last, *after) = spent[0], spent[-1]
    scale = 1e3 / (last - first)
    return scale * (after[0] - before[0]), scale * (after[1] - before[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=0, metavar="ITERATIONS")
    parser.add_argument("--cpu", type=int, default=0, metavar="ITERATIONS")
    parser.add_argument("--plot", type=Path)
    words = parser.parse_args()
    found = simulated()
    if words.plot is not None:
        plot(found, words.plot)
    if words.processes:
        processes(words.processes)
    quiet = cpu_of_calm_rounds(words.cpu) if words.cpu else True
    held = sum(min(times[:4]) / times[4] >= 0.98 for times in found.values())
    print(f"\n{held} of {2 * len(KINDS)} kinds hold, claimed 36")
    return int(held < 36 or not quiet)


if __name__ == "__main__":
    sys.exit(main())
