"""Claim: value-based teams reach the goal of each task in every seed.

The goal of a battle of SMAC-lite is a win rate of 0.8; other tasks have a return. Each seed is
trained in one process without a code, whose bits a coded run would commit, and plays greedily on
fixed starts at equal intervals, which does not count as CPU time. A run's points are kept in
``--logs``; a run that is complete there is not trained again, so that several commands can share
the seeds. Prints a Markdown table, each task's settings that are no defaults, and what its
references earn from the same starts; exits with 1 if a seed never reaches its goal.

    python benchmarks/value_curves.py --tasks 3m --seeds 1 2 3 --picture docs/value_curves.png
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import TypeAlias

from matplotlib.figure import Figure

from fullrank.cli.policies import play, play_references
from fullrank.config import RunConfig, load
from fullrank.config.layers import Resolved
from fullrank.config.tree import as_tables
from fullrank.local import LocalRun
from fullrank.runs.statistics import bootstrap, wilson
from fullrank.training.evaluation import Greedy

EVALUATION_SEED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Settings of a task, and the greedy result that its team should reach."""

    settings: Sequence[str]
    iterations: int
    goal: float
    wins: bool = False
    """True if the goal is a win rate instead of a return."""
    episodes: int = 100
    """Number of episodes of an evaluation."""
    points: int = 12
    """Number of evaluations, at equal intervals."""
    known: Mapping[str, float] = field(default_factory=dict)
    """Published returns, drawn beside the curves."""


def _battle(name: str, iterations: int) -> Task:
    named = ("environment.name=smac_lite", f"environment.map={name}", "algorithm.name=qmix")
    return Task(settings=(*named, *FASTER), iterations=iterations, goal=0.8, wins=True)


FASTER = (
    "algorithm.optimiser=adam",
    "algorithm.learning_rate=0.001",
    "algorithm.trace=0.6",
)
"""Settings of PyMARL2."""
GRIDS = (
    "environment.name=gymnasium",
    "environment.copies=2",
    "algorithm.name=vdn",
    "algorithm.recurrent=false",
    "algorithm.last_action=false",
    "algorithm.identity=false",
    "algorithm.optimiser=adam",
    "algorithm.learning_rate=0.004",
    "algorithm.discount=0.8",
    "algorithm.trace=0.8",
    "algorithm.batch_size=128",
    "algorithm.target_every=5",
    "algorithm.exploration_steps=24_000",
)
"""Settings of fully observed grids: a step further from food costs a fifth of the value, which a
small network sees, where PyMARL's discount makes it a hundredth; 32 episodes show too few places of
food; targets may be copied often, since returns of several steps are short."""


def _foraging(name: str, *settings: str) -> Task:
    chosen = (*GRIDS, f"environment.id=lbforaging:{name}", *settings)
    return Task(settings=chosen, iterations=2000, points=20, goal=0.8)


TASKS = {
    "3m": _battle("3m", 1200),
    "2s3z": _battle("2s3z", 3600),
    "8m": _battle("8m", 2400),
    "navigation": Task(
        settings=(
            "environment.name=cooperative_navigation",
            "algorithm.name=qmix",
            *FASTER,
            "algorithm.target_every=100",
        ),
        iterations=2400,
        goal=-620.0,
    ),
    "navigation8": Task(
        settings=(
            "environment.name=cooperative_navigation",
            "environment.agents=8",
            "algorithm.name=vdn",
            *FASTER,
            "algorithm.discount=0.8",
        ),
        iterations=4000,
        goal=-6260.0,  # the upper end of the 95 % interval of standing still
        episodes=200,
        points=20,
        known={"end of [Wang21]'s curve, exploring": -6750.0},
    ),
    "foraging": _foraging("Foraging-5x5-2p-1f-v3"),
    "foraging_coop": _foraging("Foraging-5x5-2p-1f-coop-v3", "algorithm.exploration_steps=40_000"),
    "warehouse": Task(
        settings=(
            *GRIDS,
            "environment.id=rware:rware-tiny-2ag-v2",
            r'environment.arguments={layout = "xgx\nxgx\nxgx", max_steps = 50}',
            "algorithm.learning_rate=0.002",
            "algorithm.discount=0.9",
            "algorithm.batch_size=64",
        ),
        iterations=400,
        goal=1.0,
        points=4,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Result of one evaluation."""

    updates: int
    episodes: int
    steps: int
    """Environment steps of all episodes, without those of the warm-up."""
    cpu_s: float
    """CPU time of the process until then, without evaluations."""
    result: float
    """Win rate or mean return."""
    low: float
    """Lower end of its 95 % interval."""
    high: float


Curves: TypeAlias = dict[tuple[str, int], list[Point]]


def main() -> int:
    arguments = _arguments()
    keys = [(task, seed) for task in arguments.tasks for seed in arguments.seeds]
    curves = {key: _curve(*key, arguments.set, arguments.logs) for key in keys}
    print("| task | seed | goal | updates to it | episodes | steps | CPU, s | at the end, 95 % |")
    print("|---|---|---|---|---|---|---|---|")
    for (task, seed), curve in curves.items():
        print(f"| {task} | {seed} | {TASKS[task].goal} | {_reached(task, curve)} |")
    print()
    references = {task: _references(task, arguments.set) for task in arguments.tasks}
    if arguments.picture:
        _draw(curves, references, arguments.picture)
    short = [key for key, curve in curves.items() if _first(key[0], curve) is None]
    print(f"\nfalls short: {short}" if short else "\nevery seed reaches its goal")
    return bool(short)


def _curve(name: str, seed: int, overrides: list[str], logs: Path) -> list[Point]:
    """Points of a run, read from its log where that is complete."""
    task, path = TASKS[name], logs / f"{name}-{seed}.jsonl"
    if path.exists():
        points = [Point(**json.loads(line)) for line in path.read_text().splitlines()]
        if points and points[-1].updates >= task.iterations:
            return points
    logs.mkdir(parents=True, exist_ok=True)
    return _train(_resolved(task, seed, overrides).config, task, path)


def _resolved(task: Task, seed: int, overrides: list[str]) -> Resolved:
    """Return the settings of a run, with their origins."""
    settings = ["code.name=fractional", "algorithm.micro_batches=1", *task.settings, *overrides]
    options = {"seed": seed, "iterations": task.iterations}
    return load(overrides=settings, options=options).check()


def _train(config: RunConfig, task: Task, path: Path) -> list[Point]:
    points, paused, start = list[Point](), 0.0, time.process_time()
    run = LocalRun(config, coded=False)
    greedy = Greedy(run.training.algorithm.actor)
    with path.open("w") as log:
        for updates, _ in enumerate(run, 1):
            if updates % (task.iterations // task.points):
                continue
            before = time.process_time()
            played = play(config, greedy, episodes=task.episodes, seed=EVALUATION_SEED)
            if task.wins and played.won is not None:
                shown = wilson(played.won)
            else:
                shown = bootstrap(played.returns)
            state = run.training.collector.state(resume_at=updates)
            point = Point(
                updates=updates,
                episodes=updates * config.environment.copies,
                steps=int(state["rollout.played"][1]),
                cpu_s=round(before - start - paused, 1),
                result=shown.mean,
                low=shown.low,
                high=shown.high,
            )
            points.append(point)
            print(json.dumps(asdict(point)), file=log, flush=True)
            paused += time.process_time() - before
    return points


def _references(name: str, overrides: list[str]) -> dict[str, float]:
    """Print a task's settings that are no defaults, and the returns of its references.

    Returns:
        The mean return of each reference; none for battles, whose goal is a win rate.
    """
    task = TASKS[name]
    resolved = _resolved(task, 0, overrides)
    tables = as_tables(resolved.config)
    chosen = {
        key: reduce(getitem, key.split("."), tables)
        for key, origin in resolved.origin.items()
        if not origin.startswith("default") and key != "seed"
    }
    print(f"* `{name}`: {', '.join(f'{key} = {value}' for key, value in chosen.items())}")
    if task.wins:
        return {}
    played = play_references(resolved.config, episodes=task.episodes, seed=EVALUATION_SEED)
    shown = {policy: bootstrap(evaluation.returns) for policy, evaluation in played.items()}
    print(f"  References: {'; '.join(f'{policy} {shown[policy]}' for policy in shown)}")
    return {policy: interval.mean for policy, interval in shown.items()}


def _first(task: str, curve: list[Point]) -> Point | None:
    return next((point for point in curve if point.result >= TASKS[task].goal), None)


def _reached(task: str, curve: list[Point]) -> str:
    first, last = _first(task, curve), curve[-1]
    end = f"{last.result:.2f} ({last.low:.2f} to {last.high:.2f})"
    at = first or last
    spent = f"{at.episodes:,} | {at.steps:,} | {at.cpu_s:.0f}"
    return f"{'' if first else 'not in '}{at.updates:,} | {spent} | {end}"


def _draw(curves: Curves, references: Mapping[str, Mapping[str, float]], path: Path) -> None:
    tasks = list(dict.fromkeys(task for task, _ in curves))
    columns = min(len(tasks), 3)
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.5 * rows), layout="constrained")
    for place, task in enumerate(tasks, 1):
        axes = figure.add_subplot(rows, columns, place)
        for (name, seed), curve in curves.items():
            if name == task:
                steps = [point.steps / 1000 for point in curve]
                (line,) = axes.plot(steps, [p.result for p in curve], label=f"seed {seed}")
                ends = [p.low for p in curve], [p.high for p in curve]
                axes.fill_between(steps, *ends, color=line.get_color(), alpha=0.15)
        axes.axhline(TASKS[task].goal, color="grey", linestyle=":")
        for name, value in {**references[task], **TASKS[task].known}.items():
            axes.axhline(value, color="grey", linewidth=0.5)
            across = axes.get_yaxis_transform()
            axes.text(0.01, value, name, transform=across, va="bottom", size="small")
        wins = TASKS[task].wins
        axes.set(title=f"smac-lite {task}" if wins else task, xlabel="thousand environment steps")
        axes.set_ylabel(
            f"{'win rate' if wins else 'return'}, {TASKS[task].episodes} greedy episodes"
        )
        axes.legend(loc="best")
    figure.savefig(path, dpi=110)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", nargs="+", default=["3m"], choices=TASKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--logs", type=Path, default=Path("runs/value_curves"))
    parser.add_argument("--picture", type=Path, help="PNG to write")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
