"""Claim: MAPPO wins battles of SMAC-lite in less CPU time than QMIX.

Each team trains in a process of its own with one thread and no code, until its greedy policies win
0.8 of the same 200 battles, or to its limit. Evaluations come after fixed numbers of updates, and
their time does not count. Prints the median over seeds with a 95 % interval between order
statistics, in which a team that did not get there counts as slower than all others; the claim is
that MAPPO's median is below QMIX's on every map. ``--study published`` trains on tasks of
[Papoudakis21] instead, and prints the best of the evaluations that all seeds have had beside the
published interval; ``--study settings`` trains MAPPO with some. ``team_curves.toml`` has settings,
limits and intervals.

Evaluations are kept in ``--logs``, a line of JSON each, and the state of teams that are not ready
in ``--states``, every minute: after Ctrl-C give the command again. ``--arms`` and ``--seeds``
choose some, ``--cap`` stops each after so many CPU seconds, ``--table`` trains none.

    OMP_NUM_THREADS=1 python benchmarks/team_curves.py --plot docs/team_curves.png
"""

import argparse
import json
import multiprocessing
import shutil
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count, product
from math import comb, inf
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib.figure import Figure

from fullrank.algorithms.roles import Player
from fullrank.common.types import BoolArray, FloatArray
from fullrank.config import RunConfig, load
from fullrank.local import LocalIteration, LocalRun
from fullrank.runs import checkpoint
from fullrank.runs.statistics import mean_interval, wilson
from fullrank.training.evaluation import Greedy, evaluate_and_close
from fullrank.wiring.plugins import environment_of

EVALUATION_SEED = 1000
SAVE_S = 60.0
"""Seconds between two states of a team."""
STUDIES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
LOGS = Path(__file__).resolve().parents[1] / "docs" / "team_curves.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An algorithm with its settings on a task."""

    settings: Sequence[str]
    every: int
    """Updates between evaluations."""
    updates: int = 10**6
    """Limit."""
    steps: int = 10**9
    """Limit in environment steps."""
    episodes: int = 200
    """Episodes of an evaluation."""
    goal: float = inf
    """Win rate to be reached, or highest return that there is, with which a team ends."""
    shares: int = 0
    """Number of agents among which a return is divided; 0: win rates count."""
    sampled: bool = False
    """Draw actions in evaluations too."""
    published: Sequence[float] = ()
    """Mean and half of the 95 % interval, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Play after some training."""

    updates: int
    steps: int
    """Environment steps collected, without those before the first update."""
    cpu_s: float
    """CPU seconds of training, without those of evaluations."""
    wall_s: float | None
    """Seconds of training, without those of evaluations; None if unknown."""
    value: float
    """Win rate, or mean return, divided as the arm says."""
    low: float
    """Lower end of its 95 % interval."""
    high: float

    def ends(self, arm: Arm) -> bool:
        """Whether the team has its goal or its limit."""
        limit = self.updates >= arm.updates or self.steps >= arm.steps
        return limit or self.value >= arm.goal


Team: TypeAlias = Sequence[Point]
"""The evaluations of a seed, by updates."""


class Sampled(Greedy):
    """An actor that draws its actions, the same draws in each evaluation."""

    def __init__(self, actor: Player, agents: int) -> None:
        super().__init__(actor)
        self._agents, self._steps = agents, count()

    def __call__(
        self, observation: FloatArray, available: BoolArray | None = None, /
    ) -> FloatArray:
        """Return drawn joint actions."""
        action, self._memory = self._actor.act(
            observation,
            self._memory,
            iteration=EVALUATION_SEED,
            step=next(self._steps),
            alive=np.ones((len(observation), self._agents), dtype=bool),
            available=available,
        )
        return action


def arms_of(study: Mapping[str, Any]) -> dict[str, Arm]:
    """The arms of a study, by ``task/algorithm``."""
    arms, shared = {}, {key: study[key] for key in ("goal", "episodes") if key in study}
    for (task, one), (algorithm, other) in product(
        study["tasks"].items(), study["algorithms"].items()
    ):
        last = study["limits"][f"{task}/{algorithm}"]
        settings = (part.get("settings", ()) for part in (study, one, other, last))
        own = {**shared, **one, **other, **last, "settings": [*chain.from_iterable(settings)]}
        arms[f"{task}/{algorithm}"] = Arm(**own)
    return arms


def train(name: str, seed: int, arm: Arm, chosen: argparse.Namespace) -> None:
    """Train a team from its last state to its goal, its limit or the cap."""
    torch.set_num_threads(1)
    sizes = [f"seed={seed}", f"iterations={arm.updates}"]
    config = load(overrides=[*sizes, *arm.settings]).check().config
    began, spent = _times(), np.zeros(2)
    run, states = LocalRun(config, coded=False), chosen.states / f"{name.replace('/', ' ')} {seed}"
    if checkpoint.saved(states):
        arrays = checkpoint.newest(states).arrays
        run.load(arrays)
        spent = arrays["spent"]
    aside, earlier, kept = -spent, spent[0], time.monotonic()
    for told in run:
        updates, spent = told.iteration + 1, _times() - began - aside
        now = _times()
        if updates % arm.every == 0:
            point = _evaluated(run, config, arm, told, spent.round(1).tolist())
            with chosen.logs.open("a") as log:
                print(json.dumps({"arm": name, "seed": seed, **asdict(point)}), file=log)
            print(f"{name}, seed {seed}: {point}", file=sys.stderr, flush=True)
            if point.ends(arm):
                shutil.rmtree(states, ignore_errors=True)
                return
        capped = spent[0] - earlier >= chosen.cap
        if (capped or time.monotonic() - kept >= SAVE_S) and run.resumable:
            arrays, kept = {**run.state(), "spent": spent}, time.monotonic()
            checkpoint.save(states, iteration=told.iteration, arrays=arrays, facts={}, keep=1)
            if capped:
                steps = told.statistics["env_steps"]
                print(f"{name}, seed {seed}: {steps:,.0f} steps, {spent[0]:.0f} CPU s", flush=True)
                return
        aside += _times() - now


def _evaluated(
    run: LocalRun, config: RunConfig, arm: Arm, told: LocalIteration, spent: Sequence[float]
) -> Point:
    """Play without learning."""
    actor, environment = run.training.algorithm.actor, environment_of(config, copies=50)
    act = Sampled(actor, len(environment.agents)) if arm.sampled else Greedy(actor)
    played = evaluate_and_close(environment, act, arm.episodes, EVALUATION_SEED)
    if arm.shares or played.won is None:
        result = mean_interval(played.returns / max(arm.shares, 1))
    else:
        result = wilson(played.won)
    value, low, high = (round(float(each), 4) for each in result)
    return Point(
        updates=told.iteration + 1,
        steps=int(told.statistics["env_steps"]),
        cpu_s=spent[0],
        wall_s=spent[1],
        value=value,
        low=low,
        high=high,
    )


def _times() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([time.process_time(), time.perf_counter()])


def read(path: Path) -> dict[str, dict[int, Team]]:
    """Evaluations of a log, by arm and seed; of those that were repeated, the first."""
    found: dict[str, dict[int, dict[int, Point]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        own = json.loads(line)
        team = found.setdefault(own.pop("arm"), {}).setdefault(own.pop("seed"), {})
        team.setdefault(own["updates"], Point(**own))
    return {
        arm: {seed: [points[key] for key in sorted(points)] for seed, points in teams.items()}
        for arm, teams in found.items()
    }


def main() -> int:
    """Train what is missing, print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--study", choices=list(STUDIES), default="battles")
    parser.add_argument("--arms", nargs="+", help="default: all of the study")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--cap", type=float, default=inf, help="CPU seconds of a team's training")
    parser.add_argument("--logs", type=Path, default=LOGS, help="file of evaluations")
    parser.add_argument("--states", type=Path, default=Path("runs/team_curves"))
    parser.add_argument("--table", action="store_true", help="train no team")
    parser.add_argument("--plot", type=Path, help="PNG to write")
    chosen = parser.parse_args()
    every = arms_of(STUDIES[chosen.study])
    arms = {name: every[name] for name in chosen.arms or every}
    for seed in () if chosen.table else chosen.seeds:
        for name, arm in arms.items():
            team = read(chosen.logs).get(name, {}).get(seed, ())
            if not any(point.ends(arm) for point in team):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    pool.apply(train, (name, seed, arm, chosen))
    found = read(chosen.logs)
    teams = {name: [*found.get(name, {}).values()] for name in arms}
    if chosen.plot:
        draw(arms, teams, chosen.plot)
    if chosen.study == "published":
        return int(not beside(arms, teams))
    ended = {
        name: [team for team in own if team[-1].ends(arms[name])] for name, own in teams.items()
    }
    return int(not compared(arms, ended) and chosen.study == "battles")


def compared(arms: Mapping[str, Arm], teams: Mapping[str, Sequence[Team]]) -> bool:
    """Print the cost of the goal by map and algorithm; return whether MAPPO's is below QMIX's.

    False unless a map has ended teams of both.
    """
    print("| map | algorithm | won 0.8 | CPU s | 95 % | updates | thousand steps |")
    print("|---|---|---|---|---|---|---|")
    medians = {name: _row(name, arms[name].goal, own) for name, own in teams.items() if own}
    maps = {name.partition("/")[0] for name in medians}
    both = [task for task in maps if {f"{task}/mappo", f"{task}/qmix"} <= medians.keys()]
    return bool(both) and all(medians[f"{task}/mappo"] < medians[f"{task}/qmix"] for task in both)


def _row(name: str, goal: float, teams: Sequence[Team]) -> float:
    """Print an arm's row; return its median of CPU seconds."""
    reached = [next((point for point in team if point.value >= goal), None) for team in teams]

    def cost(part: str) -> list[float]:
        return sorted(getattr(point, part) if point else inf for point in reached)

    seconds = cost("cpu_s")
    costs = [median(cost(part)) for part in ("updates", "steps")]
    arrived = sum(point is not None for point in reached)
    print(
        f"| {name.replace('/', ' | ')} | {arrived} of {len(teams)} | {median(seconds):.1f} | "
        f"{between(seconds)} | {costs[0]:.0f} | {costs[1] / 1000:.0f} |"
    )
    return median(seconds)


def between(values: Sequence[float]) -> str:
    """The narrowest order statistics between which the median lies with 95 %, if there are any."""
    size = len(values)
    tails = [sum(comb(size, k) for k in range(cut + 1)) / 2**size for cut in range(size)]
    cuts = [cut for cut, tail in enumerate(tails) if tail <= 0.025]
    return f"{values[cuts[-1]]:.1f} to {values[-1 - cuts[-1]]:.1f}" if cuts else "-"


def beside(arms: Mapping[str, Arm], teams: Mapping[str, Sequence[Team]]) -> bool:
    """Print the best evaluation of each arm; return if all lie in the published intervals.

    The best one is that at which the mean over seeds is highest, as in [Papoudakis21], of those
    that all seeds have had.
    """
    print("| task | algorithm | seeds | million steps | best return | published | outside by |")
    print("|---|---|---|---|---|---|---|")
    within = any(teams.values())
    for name, own in teams.items():
        if not own:
            continue
        curves = [{point.updates: point for point in team} for team in own]
        for team, curve in zip(own, curves, strict=True):
            if team[-1].value >= arms[name].goal:  # it cannot have a higher return later on
                later = {updates for other in curves for updates in other} - curve.keys()
                curve |= dict.fromkeys((at for at in later if at > team[-1].updates), team[-1])
        common = sorted(set.intersection(*map(set, curves)))
        values = np.array([[curve[updates].value for updates in common] for curve in curves])
        best = values[:, int(values.mean(axis=0).argmax())]
        result, known = mean_interval(best), arms[name].published
        played = min(curve[common[-1]].steps for curve in curves) / 1e6
        row = f"| {name.replace('/', ' | ')} | {len(own)} | {played:.2f} | {result}"
        if not known:
            print(f"{row} | - | - |")
            continue
        low, high = known[0] - known[1], known[0] + known[1]
        outside = max(low - result.mean, result.mean - high, 0.0)
        within &= outside == 0.0
        print(f"{row} | {known[0]} ± {known[1]} | {outside:.2f} |")
    return within


def draw(arms: Mapping[str, Arm], teams: Mapping[str, Sequence[Team]], path: Path) -> None:
    """Win rates against CPU seconds, or returns against steps; a panel a task, a line a seed."""
    tasks = list(dict.fromkeys(name.split("/")[0] for name, own in teams.items() if own))
    figure = Figure(figsize=(max(4.5 * len(tasks), 7), 4), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axes, task in zip(panels, tasks, strict=True):
        own = {name: each for name, each in teams.items() if each and name.startswith(f"{task}/")}
        for colour, (name, played) in enumerate(own.items()):
            arm = arms[name]
            for number, team in enumerate(played):
                label = None if number else name.partition("/")[2]
                cost = [point.steps / 1e6 if arm.shares else point.cpu_s for point in team]
                value = [point.value for point in team]
                axes.plot(cost, value, f"C{colour}.-", linewidth=1, label=label)
            if arm.published:
                mean, half = arm.published
                axes.axhspan(mean - half, mean + half, color=f"C{colour}", alpha=0.2)
        if arm.shares:
            axes.set(title=task, xlabel="million environment steps")
        else:
            axes.set(title=task, xlabel="CPU seconds, evaluations aside", ylim=(0, 1))
            axes.axhline(arm.goal, color="grey", linestyle=":")
        axes.legend(loc="lower right", fontsize="small")
    panels[0].set_ylabel("return an agent" if arm.shares else "win rate of greedy episodes")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    sys.exit(main())
