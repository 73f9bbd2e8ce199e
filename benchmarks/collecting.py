"""Claim: collectors multiply the speed of slow games.

A step of the game takes 10 ms, emulated by sleep: two cores stand for a dozen game processes, so
that the machine may be busy with other work. Real services train with a lag of two iterations.
4 collectors of 3 copies must collect at least 10 times the steps of one collector of one copy in
equal time, 2 collectors at least 1.9 times those of one, as ratios within one run; exits with 1 if
they do not.

    OMP_NUM_THREADS=1 python benchmarks/collecting.py

With ``--foreign`` the game is a PettingZoo environment whose own step takes 10 ms, and nothing is
emulated: each copy is played in a process of its own.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fullrank.cli.processes import ensure_alive, services
from fullrank.config import load, to_toml
from fullrank.runs.record import METRICS, follow

STEP_S, HORIZON, SETTLING = 0.01, 50, 4
PARTS_CLAIM, PAIR_CLAIM = 10.0, 1.9
EMULATED = (
    "environment.name=cooperative_navigation",
    f"compute.emulate_step_s={STEP_S}",
    f"environment.horizon={HORIZON}",
)
FOREIGN = (
    "environment.name=slow_game:SlowGame",
    f"environment.step_s={STEP_S}",
    f"environment.horizon={HORIZON}",
    "collectors.processes=true",
)
SETTINGS = (
    "collect.lag=2",
    "collect.warmup=64",
    "collect.warmup_copies=64",
    "algorithm.batch_size=32",
    "algorithm.hidden=16",
    "checkpoint.every=1000000",
    "metrics.sinks=[]",
    "learners=1",
    "code.name=uncoded",
)
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Collectors, the copies that each steps together, and the blocks of an iteration."""

    collectors: int
    copies: int
    blocks: int

    @property
    def name(self) -> str:
        return f"{self.collectors} x {self.copies}"


def steps_per_s(fleet: Fleet, game: Sequence[str], *, seconds: float) -> float:
    """Environment steps of a game that a fleet collects in a second."""
    copies = fleet.copies * fleet.blocks
    iterations = max(3, round(seconds / (STEP_S * HORIZON * fleet.blocks / fleet.collectors)))
    overrides = [
        *game,
        *SETTINGS,
        f"iterations={SETTLING + iterations}",
        f"environment.copies={copies}",
        f"collect.block={fleet.copies}",
        f"collectors.count={fleet.collectors}",
    ]
    config = load(environ={}, overrides=overrides).check().config
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch)
        (run_dir / "config.toml").write_text(to_toml(config))
        with services(run_dir, learners=1, collectors=fleet.collectors) as started:
            records, committed, began_at = follow(run_dir / METRICS), 0, 0.0
            while committed < SETTLING + iterations:
                time.sleep(POLL_S)
                ensure_alive(started)
                committed += len(next(records))
                if not began_at and committed >= SETTLING:
                    began_at, first = time.perf_counter(), committed
            took_s = time.perf_counter() - began_at
    return (committed - first) * copies * HORIZON / took_s


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each fleet")
    parser.add_argument("--foreign", action="store_true", help="copies in processes of their own")
    options = parser.parse_args(arguments)
    game, how = (FOREIGN, "in the game") if options.foreign else (EMULATED, "emulated by sleep")
    if options.foreign:
        os.chdir(Path(__file__).parent)  # where the services find the game
    one, parts = Fleet(collectors=1, copies=1, blocks=1), Fleet(collectors=4, copies=3, blocks=4)
    single, pair = (Fleet(collectors=count, copies=3, blocks=4) for count in (1, 2))
    print(f"Steps of {1e3 * STEP_S:.0f} ms, {how}; {HORIZON} steps an episode.\n")
    print(f"| repeat | {one.name} | {parts.name} | ratio | {single.name} | {pair.name} | ratio |")
    print("|---|---|---|---|---|---|---|")
    ratios: list[tuple[float, float]] = []
    for repeat in range(options.repeats):
        rates = [steps_per_s(each, game, seconds=options.seconds) for each in (one, parts)]
        halves = [steps_per_s(each, game, seconds=options.seconds) for each in (single, pair)]
        ratios.append((rates[1] / rates[0], halves[1] / halves[0]))
        print(
            f"| {repeat} | {rates[0]:.0f} | {rates[1]:.0f} | {ratios[-1][0]:.2f} | "
            f"{halves[0]:.0f} | {halves[1]:.0f} | {ratios[-1][1]:.2f} |",
            flush=True,
        )
    parts_ratio, pair_ratio = (sorted(each)[len(ratios) // 2] for each in zip(*ratios, strict=True))
    holds = parts_ratio >= PARTS_CLAIM and pair_ratio >= PAIR_CLAIM
    print(
        f"\nmedian: {parts.name} collects {parts_ratio:.2f} times as fast as one copy (claim "
        f"{PARTS_CLAIM:.0f}), 2 collectors {pair_ratio:.2f} times as fast as one (claim "
        f"{PAIR_CLAIM}): {'held' if holds else 'NOT held'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
