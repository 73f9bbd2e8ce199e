"""Actors that wait for each other against actors that are served as they are ready.

Steps of independent games take log-normal times of mean 1. In lockstep a step of n actors takes
the longest of them; ready-first, every actor goes on at once. Inference takes no time.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import JSON
from fullrank_dmcaf.speed import ACTORS, PER_WORKER
from fullrank_papers import pictures
from fullrank_papers.cells import Cell
from fullrank_papers.claims import ClaimResult, judge, simulated
from fullrank_papers.paper import table as table_of

CELL: Final = "waiting"
SCATTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Standard deviations of the logarithm of a step's time."""
TEAMS: Final = (PER_WORKER, ACTORS, 12)
CLAIMED: Final = (0.5, 1.3)
"""Scatter, and the least gain there."""


def cell(*, steps: int) -> Cell:
    """Gain of ready-first over lockstep by number of actors and scatter.

    Args:
        steps: Steps of each actor.
    """
    settings = {"steps": steps, "scatters": list(SCATTERS), "teams": list(TEAMS)}
    return Cell(name=CELL, settings=settings, compute=partial(_gains, steps), weight=0.1)


def _gains(steps: int) -> JSON:
    return {
        str(actors): [gain(actors, scatter, steps=steps) for scatter in SCATTERS]
        for actors in TEAMS
    }


def gain(actors: int, scatter: float, *, steps: int) -> float:
    """Return the time of a step in lockstep in that of a step of an actor by itself.

    Args:
        actors: Number of actors that wait for each other.
        scatter: Standard deviation of the logarithm of a step's time.
        steps: Steps of each actor.
    """
    times = np.exp(scatter * stream(0, "step_times", actors).standard_normal((steps, actors)))
    return float(times.max(axis=1).mean() / times.mean())


def judge_waiting(result: Mapping[str, list[float]]) -> ClaimResult:
    """Judge claim D8 at the scatter of ``CLAIMED``."""
    scatter, least = CLAIMED
    place = SCATTERS.index(scatter)
    gains = {actors: result[str(actors)][place] for actors in TEAMS}
    said = ", ".join(f"{value:.2f} with {actors} actors" for actors, value in gains.items())
    return judge(
        "D8: asynchronous actors are quicker than actors that wait for each other.",
        [f"{value:.2f} with {actors}" for actors, value in gains.items() if value < least],
        grounds=f"{said} at a scatter of {scatter} (asked: {least})",
        strength=simulated("independent log-normal step times and instant inference"),
    )


def table(result: Mapping[str, list[float]]) -> str:
    """Gains by scatter and number of actors."""
    columns = [[f"{value:.2f}" for value in result[str(actors)]] for actors in TEAMS]
    heads = ["scatter", *(f"{actors} actors" for actors in TEAMS)]
    return table_of(heads, zip(SCATTERS, *columns, strict=True))


def draw(result: Mapping[str, list[float]], path: Path) -> None:
    """Draw the gains against the scatter."""
    with pictures.panels(path, [""], size=(6.0, 3.6)) as (axes,):
        for actors, colour in zip(TEAMS, ("#009e73", "#e69f00", "#0072b2"), strict=True):
            axes.plot(SCATTERS, result[str(actors)], "o-", color=colour, label=f"{actors} actors")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xlabel("standard deviation of the logarithm of a step's time")
        axes.set_ylabel("speed, ready-first / lockstep")
        axes.legend(frameon=False)
