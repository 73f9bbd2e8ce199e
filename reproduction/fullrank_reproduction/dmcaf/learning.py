"""Fig. 8: learning of Qmix, AW and AWL from the same number of environment steps.

AW's and AWL's episodes are played by blocks; AWL's with parameters that are one update older, which
stands for its asynchrony and is the same in every run. Learning rates and networks are those of
PyMARL2, the games those of SMAC-lite.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from fullrank.common.types import JSON
from fullrank.config.layers import load
from fullrank.local import LocalRun
from fullrank.runs.statistics import student
from fullrank_reproduction import pictures
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.claim_results import ClaimResult, judge, measured
from fullrank_reproduction.dmcaf.memory import SETTINGS
from fullrank_reproduction.dmcaf.speed import COLOURS, NAMES, SYSTEMS

PLAYING: Final = {
    "episode": ("environment.copies=1",),
    "aw": ("environment.copies=4", "collect.mode=keyed", "collect.block=4"),
    "awl": ("environment.copies=12", "collect.mode=keyed", "collect.block=3", "collect.lag=1"),
}
POINTS: Final = 40
"""Points of a stored curve."""
MEAN_STEPS: Final = 20
"""Steps of a short episode, from which the number of iterations is bounded."""


def cells(name: str, *, steps: int, seeds: int) -> list[Cell]:
    """Learning curves of the three systems on a map.

    Args:
        name: The map.
        steps: Environment steps of each run.
        seeds: Runs of each system.
    """
    return [
        Cell(
            name=f"learning-{name}-{system}-{seed}",
            settings={"settings": [*SETTINGS, *PLAYING[system]], "steps": steps, "seed": seed},
            compute=partial(_curve, name, system, steps, seed),
            weight=steps / 100,
        )
        for seed in range(1, seeds + 1)
        for system in SYSTEMS
    ]


def _curve(name: str, system: str, steps: int, seed: int) -> JSON:
    """Win rates of exploring policies at equal distances, and the updates made."""
    overrides = [
        *SETTINGS,
        *PLAYING[system],
        f"environment.map={name}",
        f"seed={seed}",
        f"iterations={steps // MEAN_STEPS}",
    ]
    config = load(environ={}, overrides=overrides).check().config
    played, won = [0.0], [0.0]
    for iteration in LocalRun(config, coded=False):
        played.append(iteration.statistics["env_steps"])
        won.append(iteration.statistics["battle_won_mean"])
        if played[-1] >= steps:
            break
    bounds = np.linspace(0, steps, POINTS + 1)
    at = np.digitize(played[1:], bounds)
    rates = [
        np.mean(np.array(won[1:])[at == place]) if (at == place).any() else None
        for place in range(1, POINTS + 1)
    ]
    known = 0.0
    curve = [known := float(known if rate is None else rate) for rate in rates]
    return {"won": curve, "updates": len(won) - 1}


def _areas(results: Mapping[str, JSON], name: str, system: str, seeds: int) -> np.ndarray:
    """Mean win rate over the whole run, by seed."""
    runs = (results[f"learning-{name}-{system}-{seed}"] for seed in range(1, seeds + 1))
    return np.array([np.mean(run["won"]) for run in runs])


def judge_learning(
    results: Mapping[str, JSON], maps: Sequence[str], *, seeds: int
) -> list[ClaimResult]:
    """Judge claim D4 on each map: each system learns sooner than the one before it."""
    judged = []
    for name in maps:
        areas = {system: _areas(results, name, system, seeds) for system in SYSTEMS}
        said, wrong = [], []
        for former, latter in pairwise(SYSTEMS):
            gain = areas[latter] - areas[former]
            interval = student(gain)
            text = (
                f"{NAMES[latter]} - {NAMES[former]} {gain.mean():+.3f} "
                f"[{interval.low:+.3f}, {interval.high:+.3f}]"
            )
            said.append(text)
            if interval.low <= 0:
                wrong.append(text)
        judged.append(
            judge(
                f"D4: with equal interactions AW learns {name} sooner than Qmix, AWL than AW.",
                wrong,
                grounds="mean win rates: " + ", ".join(said),
                strength=measured(seeds, interval=True),
            )
        )
    return judged


def draw(results: Mapping[str, JSON], maps: Sequence[str], *, seeds: int, path: Path) -> None:
    """Draw the win rates, a line for each seed and one for their mean."""
    figure = pictures.blank(width=5.4 * len(maps), height=3.6)
    for axes, name in zip(figure.subplots(1, len(maps), squeeze=False).flat, maps, strict=True):
        for system in SYSTEMS:
            runs = [results[f"learning-{name}-{system}-{s}"]["won"] for s in range(1, seeds + 1)]
            for run in runs:
                axes.plot(run, color=COLOURS[system], linewidth=0.6, alpha=0.5)
            axes.plot(np.mean(runs, axis=0), color=COLOURS[system], label=NAMES[system])
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(f"environment steps, {POINTS} parts of equal size")
        axes.set_ylabel("win rate while exploring")
        axes.legend(frameon=False)
        pictures.tidy(axes)
    figure.savefig(path, dpi=pictures.DPI)
