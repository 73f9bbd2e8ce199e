"""Claim: MAPPO wins battles of SMAC-lite in less CPU time than QMIX.

Each team trains in a process of its own with one thread and no code, until its greedy policies win
0.8 of the same 200 battles, or to its limit of updates. Evaluations come after fixed numbers of
updates, and their time does not count. Prints the median over seeds with a 95 % interval between
order statistics, in which a team that did not get there counts as slower than all others; the claim
is that MAPPO's median is below QMIX's on every map. ``--study published`` trains on tasks of
[Papoudakis21] instead, with the settings of EPyMARL as far as they exist here, and prints the best
of its evaluations beside the published interval; ``--study settings`` trains MAPPO with some.

Finished teams are kept in ``--logs``, a line of JSON each, and are not trained again: after Ctrl-C
give the command again. ``--arms`` and ``--seeds`` choose some, ``--table`` trains none.

    OMP_NUM_THREADS=1 python benchmarks/team_curves.py --plot docs/team_curves.png
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb, inf
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from fullrank.runs.statistics import bootstrap, wilson

EVALUATION_SEED, EPISODES = 1000, 200
GOAL = 0.8
"""Win rate to be reached."""
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
    shares: int = 0
    """Number of agents among which [Papoudakis21] divides a return; 0: the goal is a win rate."""
    published: tuple[float, float] | None = None
    """Mean and half of the 95 % interval, if known."""


QMIX = ("name=qmix", "optimiser=adam", "learning_rate=0.001", "trace=0.6")
"""Settings of PyMARL2, by which docs/value-based.md wins battles."""
MAPPO = ("name=mappo", "batch_size=32", "learning_rate=0.001", "entropy_weight=0.1")


def battle(task: str, updates: int, every: int, settings: Sequence[str], *, copies: int = 8) -> Arm:
    """A map, until 0.8 of its battles are won."""
    own = ["environment.name=smac_lite", f"environment.map={task}", f"environment.copies={copies}"]
    own += [f"algorithm.{each}" for each in settings]
    return Arm(settings=own, updates=updates, every=every)


BATTLES = {
    "3m/mappo": battle("3m", 3000, 50, MAPPO, copies=32),
    "3m/qmix": battle("3m", 1200, 50, QMIX),
    "8m/mappo": battle("8m", 3000, 50, MAPPO, copies=32),
    "8m/qmix": battle("8m", 2400, 100, QMIX),
    "2s3z/mappo": battle("2s3z", 6000, 100, MAPPO, copies=32),
    "2s3z/qmix": battle("2s3z", 3600, 100, QMIX),
}
TRIED: Mapping[str, tuple[int, int, int, Sequence[str]]] = {
    "entropy 0.01": (500, 100, 16, ("entropy_weight=0.01",)),
    "entropy 0.01, memory": (700, 100, 32, ("entropy_weight=0.01", "recurrent=true")),
    "entropy 0.05": (3000, 100, 32, ("entropy_weight=0.05",)),
    "entropy 0.03, 10 epochs, rate 0.001": (
        3000,
        100,
        64,
        ("entropy_weight=0.03", "epochs=10", "learning_rate=0.001"),
    ),
    "entropy 0.03, trace 0.8, rate 0.001": (
        3000,
        100,
        32,
        ("entropy_weight=0.03", "trace=0.8", "learning_rate=0.001"),
    ),
    "entropy 0.05, rate 0.001": (3000, 50, 32, ("entropy_weight=0.05", "learning_rate=0.001")),
    "entropy 0.1, rate 0.001": (3000, 50, 32, MAPPO[2:]),
}
"""Limit, updates between evaluations, copies and batch, and settings of MAPPO in `3m`."""

FORAGING = ("environment.name=gymnasium", "environment.id=lbforaging:Foraging")
TASKS: Mapping[str, tuple[Sequence[str], int]] = {
    "spread": (("environment.name=cooperative_navigation",), 3),
    "listener": (("environment.name=speaker_listener",), 2),
    "8x8-2p-2f-coop": ((FORAGING[0], f"{FORAGING[1]}-8x8-2p-2f-coop-v3"), 1),
    "10x10-3p-3f": ((FORAGING[0], f"{FORAGING[1]}-10x10-3p-3f-v3"), 1),
}
"""Settings of each task, and the number of agents among which its returns are divided."""
EPYMARL = {
    "qmix": ("optimiser=adam", "recurrent=false", "target_every=200"),
    "mappo": ("batch_size=10", "micro_batches=1", "epochs=4", "hidden=128", "recurrent=true"),
}
EPYMARL["mappo"] += ("learning_rate=0.0003", "entropy_weight=0.001")
EPYMARL["ippo"] = (*EPYMARL["mappo"], "reward=team")
"""Settings of its files; others, such as n-step returns in PPO, have no equal here."""
INTERVALS = {
    "spread/qmix": (-126.62, 2.96),
    "spread/mappo": (-133.54, 3.08),
    "spread/ippo": (-133.86, 3.67),
}
"""Maximum returns of table 3, five seeds, with parameter sharing."""


def published(task: str, algorithm: str) -> Arm:
    """A task with the steps of [Papoudakis21]: 2 M by value, 20 M by policy, 41 evaluations."""
    settings, shares = TASKS[task]
    own = [*settings, f"algorithm.name={algorithm}"]
    own += [f"algorithm.{each}" for each in EPYMARL[algorithm]]
    own.append(f"environment.copies={1 if algorithm == 'qmix' else 10}")
    steps = 2_000_000 if algorithm == "qmix" else 20_000_000
    return Arm(
        settings=own,
        steps=steps,
        every=2_000 if algorithm == "qmix" else 8_000,
        shares=shares,
        published=INTERVALS.get(f"{task}/{algorithm}"),
    )


STUDIES = {
    "battles": BATTLES,
    "settings": {
        f"3m/{name}": battle(
            "3m", limit, every, ("name=mappo", f"batch_size={copies}", *own), copies=copies
        )
        for name, (limit, every, copies, own) in TRIED.items()
    },
    "published": {f"{task}/{each}": published(task, each) for task in TASKS for each in EPYMARL},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Greedy play after some training."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A trained team."""

    arm: str
    seed: int
    points: Sequence[Point]

    @property
    def reached(self) -> Point | None:
        """The point that reached the goal."""
        return next((point for point in self.points if point.value >= GOAL), None)


def train(name: str, seed: int, arm: Arm) -> Team:
    """Train a team until its goal or its limit."""
    import torch

    from fullrank.config import load
    from fullrank.local import LocalRun
    from fullrank.training.evaluation import Greedy, evaluate_and_close
    from fullrank.wiring.plugins import environment_of

    torch.set_num_threads(1)
    sizes = [f"seed={seed}", f"iterations={arm.updates}"]
    config = load(overrides=[*sizes, *arm.settings]).check().config
    began, aside, points = _times(), np.zeros(2), list[Point]()
    run = LocalRun(config, coded=False)
    act = Greedy(run.training.algorithm.actor)
    for updates, told in enumerate(run, 1):
        if updates % arm.every:
            continue
        now = _times()
        environment = environment_of(config, copies=50)
        played = evaluate_and_close(environment, act, EPISODES, EVALUATION_SEED)
        if arm.shares or played.won is None:
            result = bootstrap(played.returns / max(arm.shares, 1))
        else:
            result = wilson(played.won)
        cpu_s, wall_s = (now - began - aside).round(1).tolist()
        value, low, high = (round(float(each), 4) for each in result)
        points.append(
            Point(
                updates=updates,
                steps=int(told.statistics["env_steps"]),
                cpu_s=cpu_s,
                wall_s=wall_s,
                value=value,
                low=low,
                high=high,
            )
        )
        print(f"{name}, seed {seed}: {points[-1]}", file=sys.stderr, flush=True)
        aside += _times() - now
        if points[-1].steps >= arm.steps or (not arm.shares and value >= GOAL):
            break
    return Team(arm=name, seed=seed, points=points)


def _times() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([time.process_time(), time.perf_counter()])


def read(path: Path) -> dict[tuple[str, int], Team]:
    """Finished teams of a log, by arm and seed."""
    lines = path.read_text().splitlines() if path.exists() else []
    teams = [json.loads(line) for line in lines]
    return {
        (each["arm"], each["seed"]): Team(
            arm=each["arm"], seed=each["seed"], points=[Point(**point) for point in each["points"]]
        )
        for each in teams
    }


def main() -> int:
    """Train what is missing, print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--study", choices=list(STUDIES), default="battles")
    parser.add_argument("--arms", nargs="+", help="default: all of the study")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--logs", type=Path, default=LOGS, help="file of finished teams")
    parser.add_argument("--table", action="store_true", help="train no team")
    parser.add_argument("--plot", type=Path, help="PNG to write")
    chosen = parser.parse_args()
    arms = {name: STUDIES[chosen.study][name] for name in chosen.arms or STUDIES[chosen.study]}
    for seed in () if chosen.table else chosen.seeds:
        for name, arm in arms.items():
            if (name, seed) not in read(chosen.logs):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    team = pool.apply(train, (name, seed, arm))
                with chosen.logs.open("a") as log:
                    print(json.dumps(asdict(team)), file=log)
    every = read(chosen.logs).values()
    teams = {name: [team for team in every if team.arm == name] for name in arms}
    if chosen.study == "published":
        return int(not beside(arms, teams))
    if chosen.plot:
        draw(teams, chosen.plot)
    return int(not compared(teams) and chosen.study == "battles")


def compared(teams: Mapping[str, Sequence[Team]]) -> bool:
    """Print the cost of the goal by map and algorithm; return whether MAPPO's is below QMIX's."""
    print("| map | algorithm | won 0.8 | CPU s | 95 % | updates | thousand steps |")
    print("|---|---|---|---|---|---|---|")
    medians = {}
    for name, own in teams.items():
        medians[name] = _row(name, own) if own else inf
    maps = {name.partition("/")[0] for name in teams}
    return all(
        medians.get(f"{task}/mappo", inf) < medians.get(f"{task}/qmix", inf) for task in maps
    )


def _row(name: str, teams: Sequence[Team]) -> float:
    """Print an arm's row; return its median of CPU seconds."""
    reached = [team.reached for team in teams]

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
    count = len(values)
    tails = [sum(comb(count, k) for k in range(cut + 1)) / 2**count for cut in range(count)]
    cuts = [cut for cut, tail in enumerate(tails) if tail <= 0.025]
    return f"{values[cuts[-1]]:.1f} to {values[-1 - cuts[-1]]:.1f}" if cuts else "-"


def beside(arms: Mapping[str, Arm], teams: Mapping[str, Sequence[Team]]) -> bool:
    """Print the best evaluation of each arm beside the published interval; return if all overlap.

    The best one is that at which the mean over seeds is highest, as in [Papoudakis21].
    """
    print("| task | algorithm | seeds | steps | return | published | outside by |")
    print("|---|---|---|---|---|---|---|")
    within = True
    for name, own in teams.items():
        if not own:
            continue
        values = np.array([[point.value for point in team.points] for team in own])
        best = int(values.mean(axis=0).argmax())
        result, known = bootstrap(values[:, best]), arms[name].published
        row = (
            f"| {name.replace('/', ' | ')} | {len(own)} | {own[0].points[best].steps:,} | {result}"
        )
        if known is None:
            print(f"{row} | - | - |")
            continue
        low, high = known[0] - known[1], known[0] + known[1]
        outside = max(low - result.high, result.low - high, 0.0)
        within &= outside == 0.0
        print(f"{row} | {known[0]} ± {known[1]} | {outside:.2f} |")
    return within


def draw(teams: Mapping[str, Sequence[Team]], path: Path) -> None:
    """Win rates against CPU seconds, a panel a map and a line a seed."""
    maps = list(dict.fromkeys(name.split("/")[0] for name, own in teams.items() if own))
    figure = Figure(figsize=(max(4.5 * len(maps), 7), 4), layout="constrained")
    panels = figure.subplots(1, len(maps), sharey=True, squeeze=False)[0]
    for axes, task in zip(panels, maps, strict=True):
        own = {name: each for name, each in teams.items() if each and name.startswith(f"{task}/")}
        for colour, (name, played) in enumerate(own.items()):
            for number, team in enumerate(played):
                label = None if number else name.partition("/")[2]
                cost = [point.cpu_s for point in team.points]
                value = [point.value for point in team.points]
                axes.plot(cost, value, f"C{colour}.-", linewidth=1, label=label)
        axes.axhline(GOAL, color="grey", linestyle=":")
        axes.set(title=task, xlabel="CPU seconds, evaluations aside", ylim=(0, 1))
        axes.legend(loc="lower right", fontsize="small")
    panels[0].set_ylabel(f"win rate of {EPISODES} greedy episodes")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    sys.exit(main())
