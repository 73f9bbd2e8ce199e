"""Claim: at the best of one grid ``ippo`` takes at most 1.1 of JaxMARL's CPU time to -425.

Three players learn cooperative navigation on one core: ``ippo`` by ``LocalRun``, and IPPO and
PQN-VDN as JaxMARL states them (``jaxmarl_teams``). All have the same grid of 12 settings, none of
which changes what a step costs: three learning rates by two traces, the example's and that of
JaxMARL's PQN, by two discounts, the peers' and the example's. What is not in the grid is equal for
the two of PPO as far as both have it, as in ``examples/three_agents.toml``; PQN has what
``jaxmarl_teams`` gives it. Greedy policies play the same 200 episodes every 25,600 steps, which
does not count.

``--choose`` trains each setting with one seed until -425; a player gets the one with the fewest
steps, which no load changes. A setting is given up after as many steps as the best one before, or
after a quarter of them once its return lies 30 below that of the best one after as many. Then,
without ``--choose``, the players take turns at their settings with other seeds. Prints the median
over seeds of Fullrank's time by a peer's, of which at most 1.1 is claimed without compilation and
0.5 with it; exits with 1 if that fails. Every training is a line of JSON in ``--logs`` and is not
repeated.

    OMP_NUM_THREADS=1 python benchmarks/learns_grid.py --choose
    OMP_NUM_THREADS=1 python benchmarks/learns_grid.py
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

import torch

from fullrank.config import load
from fullrank.local import LocalRun
from fullrank.training.evaluation import Act, Greedy
from learns_peers import EXAMPLE, MOST_RATIOS, STEPS, TARGETS, Finished, played

Settings: TypeAlias = Mapping[str, float]
GRID: Sequence[Settings] = [
    dict(zip(("rate", "trace", "discount"), each, strict=True))
    for each in product((0.01, 0.003, 0.001), (0.8, 0.3), (0.9, 0.85))
]
NAMES = {"rate": "learning_rate"}
EQUAL = {"clip": 0.15, "value_clip": 0.0, "entropy": 0.0, "steps": 640_000}
"""Of JaxMARL's IPPO: as in the example, whose learning rate is 0 after so many steps."""
OURS, PEERS = "fullrank-ippo", ("jaxmarl-ippo", "jaxmarl-pqn")
LOOK_STEPS = 25_600
BEHIND = 30.0
"""Return by which a setting may lie behind the best one before."""
CHOOSING_SEED = 10


@dataclass(slots=True, kw_only=True)
class Training:
    """A training, until its goal or its end."""

    player: str
    settings: Settings
    seed: int
    compile_s: float = 0.0
    """CPU seconds of compilation, which came before."""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    """Seconds of training, without those of evaluations."""
    steps: int = 0
    updates: int = 0
    returns: list[float]
    """Greedy returns, every 25,600 steps."""

    @property
    def reached(self) -> bool:
        """Whether the return was reached."""
        return bool(self.returns) and self.returns[-1] >= TARGETS[-1]


class Watch:
    """Times a training, and plays without learning.

    Args:
        training: Takes what is found.
        rival: Returns of the best training before, which has the return.
    """

    def __init__(self, training: Training, rival: Sequence[float]) -> None:
        self.training, self._rival = training, rival
        self._began = self._aside = (0.0, 0.0)

    def start(self, compile_s: float = 0.0) -> None:
        """Begin to count after imports, and compilation, which took so many CPU seconds."""
        self._began, self.training.compile_s = _times(), round(compile_s, 1)

    def look(self, steps: int, updates: int, act: Act) -> None:
        """Evaluate a policy.

        Raises:
            Finished: It has the return, or is given up.
        """
        training, now = self.training, _times()
        spent = [n - b - a for n, b, a in zip(now, self._began, self._aside, strict=True)]
        training.cpu_s, training.wall_s = (round(each, 2) for each in spent)
        training.steps, training.updates = steps, updates
        training.returns.append(round(float(played(act).mean), 1))
        if training.reached or self._behind():
            raise Finished
        after = _times()
        self._aside = self._aside[0] + after[0] - now[0], self._aside[1] + after[1] - now[1]

    def _behind(self) -> bool:
        own, rival = self.training.returns, self._rival
        if len(own) >= len(rival):
            return bool(rival)
        return 4 * len(own) >= len(rival) and own[-1] < rival[len(own) - 1] - BEHIND


def _times() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def fullrank(watch: Watch, settings: Settings, seed: int) -> None:
    """Train by ``LocalRun``."""
    own = [f"algorithm.{NAMES.get(name, name)}={value}" for name, value in settings.items()]
    config = load(EXAMPLE, overrides=[f"seed={seed}", *own]).check().config
    watch.start()
    run = LocalRun(config, coded=False)
    act, updates = Greedy(run.training.algorithm.actor), run.training.trainer.updates
    collected = config.environment.copies * STEPS
    for told in run:
        collections, within = divmod(told.iteration + 1, updates)
        if not within and not collections * collected % LOOK_STEPS:
            watch.look(collections * collected, told.iteration + 1, act)


def jaxmarl(watch: Watch, settings: Settings, seed: int, *, name: Literal["ippo", "pqn"]) -> None:
    """Train on JaxMARL's environment."""
    from jaxmarl_teams import train

    own = {**settings, **EQUAL} if name == "ippo" else settings
    train(watch.look, watch.start, name, seed=seed, **own)


PLAYERS: Mapping[str, Callable[[Watch, Settings, int], None]] = {
    OURS: fullrank,
    PEERS[0]: partial(jaxmarl, name="ippo"),
    PEERS[1]: partial(jaxmarl, name="pqn"),
}


def train(player: str, settings: Settings, seed: int, rival: Sequence[float]) -> Training:
    """Train a player to its goal or its end, or until it is given up."""
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # JAX has threads beside this one
    training = Training(player=player, settings=settings, seed=seed, returns=[])
    with suppress(Finished), redirect_stdout(sys.stderr):
        PLAYERS[player](Watch(training, rival), settings, seed)
    return training


def kept(player: str, settings: Settings, seed: int, logs: Path) -> Training | None:
    """A training of the log."""
    lines = logs.read_text().splitlines() if logs.exists() else []
    for line in lines:
        training = Training(**json.loads(line))
        if (training.player, training.settings, training.seed) == (player, settings, seed):
            return training
    return None


def process() -> Any:
    """A pool of one process."""
    return multiprocessing.get_context("spawn").Pool(1)


def trained(
    pool: Any, player: str, settings: Settings, seed: int, logs: Path, rival: Sequence[float] = ()
) -> Training:
    """A training of the log, or a new one in a process."""
    if (found := kept(player, settings, seed, logs)) is not None:
        return found
    training: Training = pool.apply(train, (player, settings, seed, rival))
    with logs.open("a") as log:
        print(json.dumps(asdict(training)), file=log)
    print(training, file=sys.stderr, flush=True)
    return training


def best(player: str, logs: Path) -> Training | None:
    """The trial of a player that reached the return in the fewest steps, or came nearest."""
    every = [each for own in GRID if (each := kept(player, own, CHOOSING_SEED, logs))]
    reached = [own for own in every if own.reached]
    if reached:
        return min(reached, key=lambda own: own.steps)
    return max(every, key=lambda own: max(own.returns), default=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--choose", action="store_true", help="train the grid")
    parser.add_argument("--players", nargs="+", default=list(PLAYERS), choices=list(PLAYERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--logs", type=Path, default=Path("docs/learns_grid.jsonl"))
    chosen = parser.parse_args()
    if chosen.choose:
        choose(chosen.players, chosen.logs)
        return 0
    settings = {
        player: own.settings for player in chosen.players if (own := best(player, chosen.logs))
    }
    if len(settings) < len(chosen.players):
        parser.error(f"{chosen.logs} has no trials of some player: --choose first")
    return int(not judged(timed(settings, chosen.seeds, chosen.logs)))


def choose(players: Sequence[str], logs: Path) -> None:
    """Train the grid of each player."""
    print("| player | rate | trace | discount | steps to -425 | best return |")
    print("|---|---|---|---|---|---|")
    for player in players:
        with process() as pool:
            for own in GRID:
                first = best(player, logs)
                rival = first.returns if first and first.reached else ()
                found = trained(pool, player, own, CHOOSING_SEED, logs, rival)
                steps = f"{found.steps:,}" if found.reached else f"not in {found.steps:,}"
                words = " | ".join(map(str, own.values()))
                print(f"| {player} | {words} | {steps} | {max(found.returns)} |", flush=True)


def timed(
    settings: Mapping[str, Settings], seeds: Sequence[int], logs: Path
) -> dict[str, list[Training]]:
    """Train the players by turns; returns the trainings of each."""
    print("| player | seed | CPU s | compilation, CPU s | wall, s | updates | steps | return |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[str, list[Training]] = {player: [] for player in settings}
    for seed, (player, values) in product(seeds, settings.items()):
        with process() as pool:
            own = trained(pool, player, values, seed, logs)
        found[player].append(own)
        times = f"{own.cpu_s:.1f} | {own.compile_s:.1f} | {own.wall_s:.1f}"
        counts = f"{own.updates:,} | {own.steps:,} | {own.returns[-1]}"
        print(f"| {player} | {seed} | {times} | {counts} |", flush=True)
    return found


def judged(found: Mapping[str, Sequence[Training]]) -> bool:
    """Print the ratios. A peer's training that did not arrive counts with its end, ours never."""
    compared = [name for name in PEERS if name in found and OURS in found]
    holds = bool(compared)
    for peer in compared:
        pairs = list(zip(found[OURS], found[peer], strict=True))
        spent = [ours.cpu_s if ours.reached else inf for ours, _ in pairs]
        without = median(s / own.cpu_s for s, (_, own) in zip(spent, pairs, strict=True))
        counted = median(
            s / (own.cpu_s + own.compile_s) for s, (_, own) in zip(spent, pairs, strict=True)
        )
        arrived = [sum(own.reached for own in found[name]) for name in (OURS, peer)]
        print(
            f"\n{OURS} beside {peer}: {without:.2f} of its time without compilation, "
            f"{counted:.2f} with; {arrived[0]} and {arrived[1]} of {len(pairs)} arrived"
        )
        holds &= without <= MOST_RATIOS[0] and counted <= MOST_RATIOS[1]
    return holds


if __name__ == "__main__":
    sys.exit(main())
