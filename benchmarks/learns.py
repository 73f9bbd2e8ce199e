"""Claim: ``make train`` reaches -475 within 60 s and -425 within 240 s in every seed.

Each seed is trained with the defaults by ``fullrank train --local``, what ``make train`` runs, by
services with ``--services``, or with a file of settings: cooperative navigation, M = 3, where
random play has -685. The seconds of a checkpoint are those from the start of the command until it
was written; afterwards the policies of the checkpoints play the same 200 episodes greedily, in
order, until both returns are reached. Environment steps are those collected until then, the
warm-up's included. Prints a Markdown table; exits with 1 if the claim fails.

    python benchmarks/learns.py --seeds 1 2 3 4 5 --curves docs/learns.png
    python benchmarks/learns.py --config examples/three_agents.toml --claims 30 60
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captures import refused_in
from fullrank.cli.policies import play_episodes
from fullrank.common.types import Interval
from fullrank.config.toml import read_config
from fullrank.runs.checkpoint import load, saved
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.record import METRICS, read_records
from fullrank.runs.scalars import STEPS
from fullrank.runs.statistics import mean_interval
from fullrank.training.evaluation import Greedy
from fullrank.wiring.training import training_of

EVALUATION_SEED, EPISODES = 1000, 200
GOALS = (-475.0, -425.0)
REFERENCES = {
    "random play": -685.7,
    "authors of [Wang21], 10,000 updates": -417.1,
    "heuristic that sees everything": -333.0,
}
"""Known returns; the second is the last of the authors' own curve for three agents (exploring)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Greedy play of a checkpoint."""

    updates: int
    steps: int
    """Environment steps collected."""
    seconds: float
    """Seconds since the command was started."""
    result: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One seed's run."""

    seed: int
    whole_s: float
    """Seconds from the command to its end."""
    curve: Sequence[Point]
    refused: Sequence[str]
    """Captures on CUDA that failed."""

    def reached(self, goal: float) -> Point | None:
        """The first point whose mean return is at least ``goal``."""
        return next((point for point in self.curve if point.result.mean >= goal), None)


def main() -> int:
    arguments = _arguments()
    claims = dict(zip(GOALS, arguments.claims, strict=True))
    options = ["--config", str(arguments.config)] if arguments.config else []
    options += [] if arguments.services else ["--local"]
    options += [word for override in arguments.set for word in ("--set", override)]
    runs = []
    print("| seed | return | claimed, s | seconds | updates | environment steps | run, s |")
    print("|---|---|---|---|---|---|---|")
    for seed in arguments.seeds:
        runs.append(trained(seed, options))
        for goal, claim in claims.items():
            print(_row(runs[-1], goal, claim), flush=True)
    print()
    for goal in GOALS:
        taken = [point.seconds for run in runs if (point := run.reached(goal))]
        if taken:
            print(
                f"{goal:.0f}: median {statistics.median(taken):.0f} s, largest {max(taken):.0f} s"
            )
    if arguments.curves:
        _draw(runs, arguments.curves)
    late = [
        (run.seed, goal)
        for run in runs
        for goal, claim in claims.items()
        if not _in_time(run, goal, claim)
    ]
    print(f"\nlate or never: {late}" if late else "\nevery seed reaches both in time")
    return bool(late)


def _in_time(run: Trained, goal: float, claim_s: float) -> bool:
    point = run.reached(goal)
    return point is not None and point.seconds <= claim_s


def _row(run: Trained, goal: float, claim_s: float) -> str:
    point = run.reached(goal)
    facts = f"{point.seconds:.0f} | {point.updates:,} | {point.steps:,}" if point else "never | |"
    return f"| {run.seed} | {goal:.0f} | {claim_s:.0f} | {facts} | {run.whole_s:.0f} |"


def trained(seed: int, options: Sequence[str]) -> Trained:
    """Train by the command with these options, and evaluate its checkpoints."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        command = [sys.executable, "-m", "fullrank", "train", "--run-dir", str(run)]
        command += ["--seed", str(seed), "--set", "checkpoint.keep=1000000"]
        command += options
        started, began = time.time(), time.perf_counter()
        subprocess.run(command, check=True, stdout=sys.stderr)
        whole_s = time.perf_counter() - began
        curve, refused = _curve(run, started), refused_in(run)
        return Trained(seed=seed, whole_s=whole_s, curve=curve, refused=refused)


def _curve(run: Path, started: float) -> list[Point]:
    """Points of the checkpoints; once both returns are reached, of every tenth and the last."""
    config = read_config(run)
    training = training_of(config)
    training.collector.close()
    points, reached = list[Point](), False
    records = read_records(run / METRICS)
    newest, *_ = checkpoints = saved(run / CHECKPOINTS)
    for index, path in enumerate(reversed(checkpoints)):
        if reached and index % 10 and path != newest:
            continue
        checkpoint = load(path)
        training.trainer.load(checkpoint.arrays)
        greedy = Greedy(training.algorithm.actor)
        played = play_episodes(config, greedy, episodes=EPISODES, seed=EVALUATION_SEED)
        updates = checkpoint.iteration + 1
        collected = int(records[checkpoint.iteration].statistics[STEPS] or 0)
        points.append(
            Point(
                updates=updates,
                steps=training.collector.warmup + collected,
                seconds=path.stat().st_mtime - started,
                result=mean_interval(played.returns),
            )
        )
        reached = reached or points[-1].result.mean >= max(GOALS)
    return points


def _draw(runs: Sequence[Trained], path: Path) -> None:
    """Greedy returns by update, beside the known ones."""
    from matplotlib.figure import Figure  # which ``one_device.py`` may lack

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        updates = [point.updates for point in run.curve]
        axes.plot(updates, [p.result.mean for p in run.curve], label=f"seed {run.seed}")
    end = max(run.curve[-1].updates for run in runs)
    for name, value in REFERENCES.items():
        axes.axhline(value, color="grey", linestyle=":")
        axes.annotate(name, (end, value), (0, 3), textcoords="offset points", ha="right")
    axes.set(
        xlabel="update",
        ylabel=f"return, {EPISODES} greedy episodes",
        title="Cooperative navigation, M = 3",
        ylim=(-800, -310),
    )
    axes.legend(loc="center right")
    figure.savefig(path, dpi=150)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--config", type=Path, help="file of settings")
    parser.add_argument(
        "--claims",
        type=float,
        nargs=2,
        default=[60.0, 240.0],
        metavar="SECONDS",
        help="within which -475 and -425 are claimed to be reached",
    )
    parser.add_argument("--services", action="store_true", help="by services")
    parser.add_argument("--curves", type=Path, help="PNG to write")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
