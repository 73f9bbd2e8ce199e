"""Claim: cooperative navigation is learnt in a third of the CPU time that MADDPG takes elsewhere.

Each player trains M = 3 agents on Fullrank's own environment, all copies stepped as arrays, in a
process of its own with one thread, for the same CPU time. Its greedy policy plays the same 200
episodes every second, and the time of these evaluations does not count. Returns are sums over
agents and 25 steps; a return is reached when the mean first passes it.

* ``fullrank``: ``LocalRun`` with the defaults, what ``fullrank train --local`` computes
* ``fullrank-ippo``: ``LocalRun`` with ``examples/three_agents.toml``
* ``benchmarl``: BenchMARL's MADDPG (TorchRL's losses, collector and buffer) as shipped
* ``benchmarl-alike``: the same with settings like Fullrank's, and a learning rate of 0.001
* ``jaxmarl-ippo``, ``jaxmarl-pqn``: IPPO and PQN-VDN as JaxMARL states them (``jaxmarl_teams``), on
  its environment; compilation is counted apart. Claim: ``fullrank-ippo`` takes at most 1.1 of their
  time to -425 without compilation, and half of it with.

A player whose package is missing is left out. ``benchmarl`` needs hydra-core. A run's points are
kept in ``--logs``; a run that is complete there is not trained again. Prints a Markdown table;
exits with 1 if the claim fails.

    OMP_NUM_THREADS=1 python benchmarks/learns_peers.py --seeds 0 1 2 --plot docs/learns_peers.png
"""

import argparse
import importlib.util
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from fullrank.common.types import Interval
from fullrank.environments.base import make_environment
from fullrank.runs.statistics import mean_interval
from fullrank.training.evaluation import Act, Greedy, evaluate
from fullrank.training.references import GOOD, RANDOM, STILL, references

TASK, AGENTS, EPISODES, EVALUATION_SEED, STEPS = "cooperative_navigation", 3, 200, 1000, 25
EXAMPLE = Path(__file__).parents[1] / "examples" / "three_agents.toml"
TARGETS = (-475.0, -425.0)
LEAST_RATIO = 3.0
MOST_RATIOS = 1.1, 0.5
"""Most of the time of a compiled peer, without and with compilation."""
REFERENCES = {
    RANDOM: "random play",
    STILL: "standing still",
    GOOD: "heuristic that sees everything",
}


class Finished(Exception):
    """The time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Greedy play after some training."""

    cpu_s: float
    """CPU seconds of training, without those of evaluations."""
    wall_s: float
    """Seconds of training, without those of evaluations."""
    steps: int
    """Environment steps collected, those before the first update included."""
    updates: int
    mean: float
    low: float
    """Lower end of the 95 % interval of the mean return."""
    high: float
    compile_s: float = 0.0
    """CPU seconds of compilation, which came before."""


AXES: Sequence[tuple[str, str, Callable[[Point], float]]] = (
    ("environment steps", "log", lambda point: point.steps),
    ("updates", "log", lambda point: point.updates),
    ("CPU seconds, evaluations aside", "linear", lambda point: point.cpu_s),
)
"""Label, scale and value of what a return costs."""

Curve: TypeAlias = Sequence[Point]
Runs: TypeAlias = Mapping[str, Mapping[int, Curve]]
"""Curves of each player, by seed."""


@dataclass(slots=True)
class Clock:
    """CPU and wall time of training, without that of evaluations.

    Args:
        cap_s: CPU seconds of training after which to stop.
        every_s: CPU seconds between evaluations.
        log: File of the points, a line of JSON each.
    """

    cap_s: float
    every_s: float
    log: Path
    _aside: tuple[float, float] = (0.0, 0.0)
    _due_s: float = 0.0
    _began: tuple[float, float] = (0.0, 0.0)
    _compile_s: float = 0.0

    def start(self, compile_s: float = 0.0) -> None:
        """Begin to count; imports come before, and compilation, which took so many CPU seconds."""
        self._began, self._compile_s = _times(), compile_s
        self._due_s = self.every_s

    def look(self, steps: int, updates: int, act: Act) -> None:
        """Evaluate ``act`` if it is due.

        Args:
            steps: Environment steps collected.
            updates: Updates of all agents.
            act: Greedy policy.

        Raises:
            Finished: The time is over.
        """
        now = _times()
        cpu_s, wall_s = (n - b - a for n, b, a in zip(now, self._began, self._aside, strict=True))
        if cpu_s < min(self._due_s, self.cap_s):
            return
        mean, low, high = played(act)
        point = Point(
            cpu_s=round(cpu_s, 1),
            wall_s=round(wall_s, 1),
            steps=steps,
            updates=updates,
            mean=mean,
            low=low,
            high=high,
            compile_s=round(self._compile_s, 1),
        )
        with self.log.open("a") as log:
            print(json.dumps(asdict(point)), file=log)
        print(f"{cpu_s:.0f} s, {steps} steps: {mean:.1f}", file=sys.stderr, flush=True)
        after = _times()
        self._aside = (self._aside[0] + after[0] - now[0], self._aside[1] + after[1] - now[1])
        self._due_s = cpu_s + self.every_s
        if cpu_s >= self.cap_s:
            raise Finished


def _times() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def played(act: Act) -> Interval:
    """Mean return of the episodes that everyone plays."""
    environment = make_environment(TASK, agents=AGENTS, copies=50)
    return mean_interval(evaluate(environment, act, EPISODES, EVALUATION_SEED).returns)


def known() -> dict[str, float]:
    """Mean returns of the policies that need no training."""
    environment = make_environment(TASK, agents=AGENTS, copies=50)
    acts = references(environment, seed=EVALUATION_SEED)
    return {
        name: float(evaluate(environment, act, EPISODES, EVALUATION_SEED).returns.mean())
        for name, act in acts.items()
    }


def fullrank(clock: Clock, seed: int) -> None:
    """Train by ``LocalRun`` with the default settings."""
    from fullrank.config import load
    from fullrank.local import LocalRun

    config = load(overrides=[f"seed={seed}", "iterations=100000"]).check().config
    clock.start()
    run = LocalRun(config, coded=False)
    act = Greedy(run.training.algorithm.actor)
    per_update = config.environment.copies * config.collect.steps
    for updates, _ in enumerate(run, 1):
        clock.look(run.training.collector.warmup + updates * per_update, updates, act)


def fullrank_ippo(clock: Clock, seed: int) -> None:
    """Train by ``LocalRun`` with the example's settings."""
    from fullrank.config import load
    from fullrank.local import LocalRun

    config = load(EXAMPLE, overrides=[f"seed={seed}"]).check().config
    clock.start()
    run = LocalRun(config, coded=False)
    act, updates = Greedy(run.training.algorithm.actor), run.training.trainer.updates
    for update, _ in enumerate(run, 1):
        collected = -(-update // updates) * config.environment.copies * STEPS
        clock.look(collected, update, act)


def jaxmarl(clock: Clock, seed: int, *, name: Literal["ippo", "pqn"]) -> None:
    """Train a team on JaxMARL's environment."""
    from jaxmarl_teams import train

    train(clock.look, clock.start, name, seed=seed)


def benchmarl(clock: Clock, seed: int, *, alike: bool = False) -> None:
    """Train by BenchMARL's experiment."""
    from benchmarl_maddpg import train

    clock.start()
    train(clock.look, agents=AGENTS, seed=seed, alike=alike)


class Player(NamedTuple):
    """One side of the comparison."""

    label: str
    package: str
    train: Callable[[Clock, int], None]


PLAYERS = {
    "fullrank": Player("Fullrank, defaults", "fullrank", fullrank),
    "benchmarl-alike": Player(
        "BenchMARL, settings like Fullrank's",
        "benchmarl",
        lambda clock, seed: benchmarl(clock, seed, alike=True),
    ),
    "benchmarl": Player("BenchMARL as shipped", "benchmarl", benchmarl),
    "fullrank-ippo": Player("Fullrank, three_agents.toml", "fullrank", fullrank_ippo),
    "jaxmarl-ippo": Player("JaxMARL, IPPO", "jaxmarl", partial(jaxmarl, name="ippo")),
    "jaxmarl-pqn": Player("JaxMARL, PQN-VDN", "jaxmarl", partial(jaxmarl, name="pqn")),
}


def play(name: str, seed: int, clock: Clock) -> None:
    """Train one player to the cap."""
    import torch

    torch.set_num_threads(1)
    clock.log.parent.mkdir(parents=True, exist_ok=True)
    clock.log.write_text("")
    with suppress(Finished), redirect_stdout(sys.stderr):
        PLAYERS[name].train(clock, seed)


def curve_of(name: str, seed: int, chosen: argparse.Namespace) -> Curve:
    """A player's curve, from its log where that is complete."""
    path: Path = chosen.logs / f"{name}-{seed}.jsonl"
    curve = read(path) if path.exists() else []
    if curve and curve[-1].cpu_s >= chosen.cap:
        return curve
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(play, (name, seed, Clock(chosen.cap, chosen.every, path)))
    return read(path)


def read(path: Path) -> Curve:
    """Points of a log."""
    return [Point(**json.loads(line)) for line in path.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU seconds to a return beside peers.")
    parser.add_argument("--players", nargs="+", default=list(PLAYERS), choices=list(PLAYERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--cap", type=float, default=135.0, help="CPU seconds of a training")
    parser.add_argument("--every", type=float, default=1.0, help="CPU seconds per evaluation")
    parser.add_argument("--logs", type=Path, default=Path("runs/learns_peers"))
    parser.add_argument("--plot", type=Path, help="PNG to write")
    chosen = parser.parse_args()
    runs = {
        name: {seed: curve_of(name, seed, chosen) for seed in chosen.seeds}
        for name in chosen.players
        if importlib.util.find_spec(PLAYERS[name].package)
    }
    levels = known()
    print("| player | seed | return | CPU, s | wall, s | updates | environment steps |")
    print("|---|---|---|---|---|---|---|")
    for name, curves in runs.items():
        for seed, curve in curves.items():
            for row in rows(curve):
                print(f"| {name} | {seed} | {row} |")
    words = ", ".join(f"{REFERENCES[name]} {level:.0f}" for name, level in levels.items())
    print(f"\nReturns without training: {words}\n")
    for name in runs:
        print(f"* {name}, instead of the library's own settings: {changes(name)}")
    holds = judge(runs)
    if chosen.plot:
        draw(runs, levels, chosen.plot)
    return int(not holds)


def rows(curve: Curve) -> list[str]:
    """Where a curve reaches each return, and its end."""
    reached = [(f"{target:.0f}", first(curve, target)) for target in TARGETS]
    end = curve[-1]
    reached.append((f"end: {end.mean:.0f} ({end.low:.0f} to {end.high:.0f})", end))
    return [
        f"{goal} | {at.cpu_s:.0f} | {at.wall_s:.0f} | {at.updates:,} | {at.steps:,}"
        if at
        else f"{goal} | not reached | | | "
        for goal, at in reached
    ]


def first(curve: Curve, target: float) -> Point | None:
    """The first point whose mean return is at least ``target``."""
    return next((point for point in curve if point.mean >= target), None)


def changes(name: str) -> str:
    """Settings of a player that differ from its library's own."""
    if name == "fullrank":
        return "none"
    if name == "fullrank-ippo":
        return EXAMPLE.name
    if name.startswith("jaxmarl"):
        import jaxmarl_teams

        own = jaxmarl_teams.SETTINGS[name.removeprefix("jaxmarl-")]
        return ", ".join(f"{key} {value}" for key, value in own.items())
    import benchmarl_maddpg

    return ", ".join(benchmarl_maddpg.changes(alike=name == "benchmarl-alike"))


def judge(runs: Runs) -> bool:
    """Print the ratios of Fullrank and its peers; a run that did not arrive counts with its end."""
    holds = True
    for name in runs:
        if name.startswith("benchmarl") and "fullrank" in runs:
            for target in TARGETS:
                reached = all(first(curve, target) for curve in runs[name].values())
                ours, theirs = (_seconds(runs[player], target) for player in ("fullrank", name))
                bound = "" if reached else "at least "
                print(f"\n{name} to {target:.0f}: {bound}{theirs / ours:.1f} times Fullrank's time")
                holds &= theirs >= LEAST_RATIO * ours
        if name.startswith("jaxmarl") and "fullrank-ippo" in runs:
            ours, theirs = (
                _seconds(runs[player], TARGETS[-1]) for player in ("fullrank-ippo", name)
            )
            compile_s = median(curve[-1].compile_s for curve in runs[name].values())
            ratios = ours / theirs, ours / (theirs + compile_s)
            words = "{:.2f} of its time without compilation, {:.2f} with".format(*ratios)
            print(
                f"\nfullrank-ippo beside {name} to {TARGETS[-1]:.0f}: {words} ({compile_s:.0f} s)"
            )
            holds &= all(own <= most for own, most in zip(ratios, MOST_RATIOS, strict=True))
    return holds


def _seconds(curves: Mapping[int, Curve], target: float) -> float:
    return median((first(curve, target) or curve[-1]).cpu_s for curve in curves.values())


def draw(runs: Runs, levels: Mapping[str, float], path: Path) -> None:
    """Returns, spaced by their logarithms, against each cost; a thin line a seed."""
    figure = Figure(figsize=(13, 4.5), layout="constrained")
    panels = figure.subplots(1, len(AXES), sharey=True)
    for axes, (label, scale, cost) in zip(panels, AXES, strict=True):
        for colour, (name, curves) in enumerate(runs.items()):
            for curve in curves.values():
                costs = [cost(point) for point in curve]
                axes.plot(costs, [p.mean for p in curve], color=f"C{colour}", linewidth=1)
            axes.plot([], [], color=f"C{colour}", label=PLAYERS[name].label)
        for level in levels.values():
            axes.axhline(level, color="grey", linestyle=":")
        axes.set(xlabel=label, xscale=scale)
    for name, level in levels.items():
        panels[-1].annotate(
            REFERENCES[name],
            (1, level),
            (-4, 2 if name == STILL else -2),
            xycoords=panels[-1].get_yaxis_transform(),
            textcoords="offset points",
            ha="right",
            va="bottom" if name == STILL else "top",
            fontsize="small",
        )
    spacing = (lambda y: -np.log(np.maximum(-y, 1.0)), lambda z: -np.exp(-z))
    panels[0].set_yscale("function", functions=spacing)
    panels[0].set(
        ylabel=f"return, {EPISODES} greedy episodes",
        ylim=(-2400, -310),
        yticks=[-2000, -1500, -1000, -800, -600, -500, -400],
    )
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    sys.exit(main())
