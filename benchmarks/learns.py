"""Claim: with its defaults, MADDPG learns cooperative navigation in every seed.

Each seed is trained, and its policies before and after play greedily on fixed initial states. The
claim holds if in every seed the 95 % interval of the mean return after training lies above that of
the uniform random policy on the same states. Prints a Markdown table; exits with 1 if the claim
fails.

    python benchmarks/learns.py --services --iterations 2000 --seeds 0 1 2 --curves docs/learns.png
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fullrank.cli.policies import play
from fullrank.common.types import Interval
from fullrank.config import RunConfig, load, to_toml
from fullrank.local import LocalRun
from fullrank.runs.record import read_records
from fullrank.runs.statistics import bootstrap
from fullrank.training.evaluation import Act, Greedy

EVALUATION_SEED = 1000
WINDOW = 25
"""Iterations averaged in a point of a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One seed's run."""

    seed: int
    curve: NDArray[np.float64]
    """Mean return of each iteration."""
    before: Interval
    after: Interval


def main() -> int:
    arguments = _arguments()
    configs = [_config(seed, arguments.iterations, arguments.set) for seed in arguments.seeds]
    train = _train_by_services if arguments.services else _train_locally
    random = _play(configs[0], None, arguments.episodes)
    print("| seed | before | after | random |\n|---|---|---|---|")
    runs = []
    for config in configs:
        runs.append(train(config, arguments.episodes, arguments.coded))
        run = runs[-1]
        print(f"| {run.seed} | {run.before} | {run.after} | {random} |", flush=True)
    if arguments.curves:
        _draw(runs, random, arguments.curves)
    short = [run.seed for run in runs if run.after.low <= random.high]
    print(f"falls short in seeds {short}" if short else "every seed learns")
    return bool(short)


def _train_locally(config: RunConfig, episodes: int, coded: bool) -> Trained:
    run = LocalRun(config, coded=coded)
    act = Greedy(run.training.algorithm.actor)
    before = _play(config, act, episodes)
    returns = [iteration.return_mean for iteration in run]
    return _trained(config, returns, before, _play(config, act, episodes))


def _train_by_services(config: RunConfig, episodes: int, coded: bool) -> Trained:
    untrained = Greedy(LocalRun(config).training.algorithm.actor)
    with tempfile.TemporaryDirectory() as directory:
        run, settings = Path(directory) / "run", Path(directory) / "settings.toml"
        settings.write_text(to_toml(config))
        options = ["--config", str(settings), *([] if coded else ["--code", "uncoded"])]
        fullrank = [sys.executable, "-m", "fullrank"]
        subprocess.run(
            [*fullrank, "train", *options, "--run-dir", str(run)], check=True, stdout=sys.stderr
        )
        options = ["--episodes", str(episodes), "--seed", str(EVALUATION_SEED), "--no-random"]
        evaluation = subprocess.run(
            [*fullrank, "eval", str(run), *options, "--json"], check=True, capture_output=True
        )
        facts = json.loads(evaluation.stdout)["trained"]
        after = Interval(facts["mean"], facts["low"], facts["high"])
        returns = [record.return_mean for record in read_records(run / "metrics.jsonl")]
    return _trained(config, returns, _play(config, untrained, episodes), after)


def _trained(
    config: RunConfig, returns: list[float | None], before: Interval, after: Interval
) -> Trained:
    curve = np.array([np.nan if value is None else value for value in returns])
    return Trained(seed=config.seed, curve=curve, before=before, after=after)


def _config(seed: int, iterations: int, overrides: list[str]) -> RunConfig:
    options = {"seed": seed, "iterations": iterations}
    return load(overrides=overrides, options=options).check().config


def _play(config: RunConfig, act: Act | None, episodes: int) -> Interval:
    """Mean return on the fixed initial states; without ``act`` that of the random policy."""
    return bootstrap(play(config, act, episodes=episodes, seed=EVALUATION_SEED).returns)


def _draw(runs: list[Trained], random: Interval, path: Path) -> None:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        points = len(run.curve) // WINDOW
        mean = np.nanmean(run.curve[: points * WINDOW].reshape(points, WINDOW), axis=1)
        axes.plot((np.arange(points) + 0.5) * WINDOW, mean, label=f"seed {run.seed}")
    axes.axhspan(random.low, random.high, color="grey", alpha=0.4, label="random policy")
    axes.set(xlabel="iteration", ylabel="return of an episode, exploring, sum over agents")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--coded", action="store_true", help="with learners and the default code")
    parser.add_argument("--services", action="store_true", help="by `fullrank train`")
    parser.add_argument("--curves", type=Path, help="PNG to write")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
