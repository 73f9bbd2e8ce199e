"""Fig. 8: learning of Qmix, AW and AWL from the same number of environment steps.

AW's and AWL's episodes are played by blocks; AWL's with parameters that are one update older, which
stands for its asynchrony and is the same in every run. Learning rates and networks are those of
PyMARL2, the games those of SMAC-lite.
"""

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from fullrank.common.types import JSON, Array
from fullrank.local import LocalRun
from fullrank.runs.statistics import student
from fullrank_dmcaf.memory import SETTINGS
from fullrank_dmcaf.speed import COLOURS, NAMES, SYSTEMS, DmcafScale
from fullrank_papers import pictures
from fullrank_papers.cells import Cell, Results
from fullrank_papers.claims import ClaimResult, judge, measured
from fullrank_papers.runs import configured

PLAYING: Final = {
    "episode": ("environment.copies=1",),
    "aw": ("environment.copies=4", "collect.mode=keyed", "collect.block=4"),
    "awl": ("environment.copies=12", "collect.mode=keyed", "collect.block=3", "collect.lag=1"),
}
POINTS: Final = 40
"""Points of a stored curve."""
MEAN_STEPS: Final = 20
"""Steps of a short episode, from which the number of iterations is bounded."""


def cells(scale: DmcafScale) -> list[Cell]:
    """Learning curves of the three systems on each map."""
    return [
        Cell(
            name=_name(name, system, seed),
            settings={
                "settings": [*SETTINGS, *PLAYING[system]],
                "steps": scale.steps,
                "seed": seed,
            },
            compute=partial(_curve, name, system, scale.steps, seed),
            weight=scale.steps / 100,
        )
        for name in scale.learnt
        for seed in range(1, scale.seeds + 1)
        for system in SYSTEMS
    ]


def _name(name: str, system: str, seed: int) -> str:
    return f"learning-{name}-{system}-{seed}"


def _curve(name: str, system: str, steps: int, seed: int) -> JSON:
    """Win rates of exploring policies at equal distances, and the updates made."""
    overrides = [
        *SETTINGS,
        *PLAYING[system],
        f"environment.map={name}",
        f"seed={seed}",
        f"iterations={steps // MEAN_STEPS}",
    ]
    played, won = [0.0], [0.0]
    for iteration in LocalRun(configured(*overrides), coded=False):
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


def _won(results: Results, scale: DmcafScale, name: str, system: str) -> Array:
    """Win rates, shape (seeds, points)."""
    seeds = range(1, scale.seeds + 1)
    return np.array([results[_name(name, system, seed)]["won"] for seed in seeds])


def judge_learning(results: Results, scale: DmcafScale) -> list[ClaimResult]:
    """Judge claim D4 on each map: each system learns sooner than the one before it."""
    judged = []
    for name in scale.learnt:
        areas = {each: _won(results, scale, name, each).mean(axis=1) for each in SYSTEMS}
        said, wrong = [], []
        for former, latter in pairwise(SYSTEMS):
            gain = student(areas[latter] - areas[former])
            text = (
                f"{NAMES[latter]} - {NAMES[former]} {gain.mean:+.3f} "
                f"[{gain.low:+.3f}, {gain.high:+.3f}]"
            )
            said.append(text)
            wrong += [text] if gain.low <= 0 else []
        judged.append(
            judge(
                f"D4: with equal interactions AW learns {name} sooner than Qmix, AWL than AW.",
                wrong,
                grounds="mean win rates: " + ", ".join(said),
                strength=measured(scale.seeds, interval=True),
            )
        )
    return judged


def draw(results: Results, scale: DmcafScale, path: Path) -> None:
    """Draw the win rates, a line for each seed and one for their mean."""
    with pictures.panels(path, scale.learnt) as every:
        for axes, name in zip(every, scale.learnt, strict=True):
            for system in SYSTEMS:
                won = _won(results, scale, name, system)
                axes.plot(won.T, color=COLOURS[system], linewidth=0.6, alpha=0.5)
                axes.plot(won.mean(axis=0), color=COLOURS[system], label=NAMES[system])
            axes.set_xlabel(f"environment steps, {POINTS} parts of equal size")
            axes.set_ylabel("win rate while exploring")
            axes.legend(frameon=False)
