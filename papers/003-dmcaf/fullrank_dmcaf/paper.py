"""Paper 003: its parts, claims, tables and pictures.

Claim D8 is about actors that wait for each other against actors that are served as they are ready.
Steps of independent games take log-normal times of mean 1. In lockstep a step of n actors takes the
longest of them; ready-first, every actor goes on at once. Inference takes no time.

Differences from the paper:

- Games are those of SMAC-lite; steps of the game and updates are durations, or sleeps of services.
- Times are solved from AW's in Table III, and no actor waits for a core.
- AWL's learner updates once for each episode at most; the paper's has no such limit.
- Parameters and episodes travel by gRPC, without a pool of shared memory.
- Hierarchical Qmix and MaCA are not run.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import JSON
from fullrank.environments import make_environment
from fullrank.environments.capabilities import state_size
from fullrank_dmcaf import learning, served, speed
from fullrank_dmcaf.speed import ACTORS, PACKAGE, PER_WORKER, SCALES, SCENARIOS, DmcafScale
from fullrank_papers import pictures
from fullrank_papers.cells import Cell
from fullrank_papers.claims import (
    CIRCULAR,
    ClaimResult,
    Judgement,
    judge,
    untested,
)
from fullrank_papers.paper import Findings, Paper, Planned, table

WAITING: Final = "waiting"
SCATTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Standard deviations of the logarithm of a step's time."""
TEAMS: Final = (PER_WORKER, ACTORS, 12)
CLAIMED: Final = (0.5, 1.3)
"""Scatter, and the least gain there."""


def waiting_cell(*, steps: int) -> Cell:
    """Gain of ready-first over lockstep by number of actors and scatter.

    Args:
        steps: Steps of each actor.
    """
    settings = {"steps": steps, "scatters": list(SCATTERS), "teams": list(TEAMS)}
    return Cell(name=WAITING, settings=settings, compute=partial(_gains, steps), weight=0.1)


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
        grounds=f"the longest of n times is longer than one; {said} at a scatter of {scatter}",
        strength=CIRCULAR,
    )


def waiting_table(result: Mapping[str, list[float]]) -> str:
    """Gains by scatter and number of actors."""
    columns = [[f"{value:.2f}" for value in result[str(actors)]] for actors in TEAMS]
    heads = ["scatter", *(f"{actors} actors" for actors in TEAMS)]
    return table(heads, zip(SCATTERS, *columns, strict=True))


def _draw_waiting(result: Mapping[str, list[float]], path: Path) -> None:
    """Draw the gains against the scatter."""
    with pictures.panels(path, [""], size=(6.0, 3.6)) as (axes,):
        for actors, colour in zip(TEAMS, ("#009e73", "#e69f00", "#0072b2"), strict=True):
            axes.plot(SCATTERS, result[str(actors)], "o-", color=colour, label=f"{actors} actors")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xlabel("standard deviation of the logarithm of a step's time")
        axes.set_ylabel("speed, ready-first / lockstep")
        axes.legend(frameon=False)


DmcafFindings: TypeAlias = Findings[DmcafScale]


def _cells(scale: DmcafScale) -> Planned:
    waits = waiting_cell(steps=scale.waits)
    curves = [*learning.cells(scale), *served.served_cells(scale)]
    return [waits, *speed.cells(scale), *learning.memory_cells(scale), *curves]


def judge_interfaces() -> ClaimResult:
    """Judge claim D1: SMAC-lite offers the interface of Table I on all four maps."""
    wrong = []
    for name, scenario in SCENARIOS.items():
        environment = make_environment("smac_lite", copies=1, map=name)
        agents = environment.agents
        ours = (
            agents[0].action.size,
            len(agents),
            state_size(environment),
            agents[0].observation_size,
        )
        theirs = (scenario.actions, scenario.agents, scenario.state, scenario.observation)
        environment.close()
        if ours != theirs:
            wrong.append(f"{name} has {ours}, not {theirs}")
    return judge(
        "D1: actions, agents, state and observation of 3m, 8m, 2s3z, 5m_vs_6m (Table I).",
        wrong,
        grounds="SMAC-lite was built to that interface",
        strength=CIRCULAR,
    )


def judged(found: DmcafFindings) -> Judgement:
    """Results by source."""
    if not found.whole:
        return {}
    scale, results = found.scale, found.results
    return {
        "Table I": [judge_interfaces()],
        "Table III and Fig. 7": speed.judge_speed(results, scale),
        **learning.judge_learning(results, scale),
        "Fig. 8, by services": served.judge_served(results, scale),
        "Fig. 9": [
            untested(
                "D6: more environments earn more in MaCA (Fig. 9).",
                'the game\'s core is encrypted, and "hierarchical Qmix" is not defined',
            )
        ],
        "Fig. 4": [learning.judge_memory(learning.memory(results, scale))],
        "Sec. III": [judge_waiting(results[WAITING])],
    }


def _values(found: DmcafFindings) -> Mapping[str, Any]:
    if not found.whole:
        return {}
    scale, results = found.scale, found.results
    values = {
        "speed": speed.table(results, scale.maps),
        "waiting": waiting_table(results[WAITING]),
        "served_s": speed.SERVED_S,
        "served": speed.served_said(results, scale),
        "maps": ", ".join(f"{steps:,} ({name})" for name, steps in scale.learnt.items()),
        "played": scale.episodes,
        "seeds": len(scale.seeds),
        "teams": len(scale.teams),
        "beside_coma": ", ".join(
            f"{len(seeds)} of {speed.NAMES[system]} on {name}"
            for name, more in scale.beside_coma.items()
            for system, seeds in more.items()
        )
        or "none",
        "in_time": ", ".join(f"{len(own)} on {name}" for name, own in scale.in_time.items())
        or "none",
    }
    if scale.learnt:
        values["curves"] = learning.learning_table(results, scale)
    return values


def _draw(found: DmcafFindings, directory: Path) -> None:
    if not found.whole:
        return
    scale, results = found.scale, found.results
    speed.draw(results, scale.maps, directory / "speed.png")
    _draw_waiting(results[WAITING], directory / "waiting.png")
    learning.draw_memory(learning.memory(results, scale), directory / "memory.png")
    if scale.learnt:
        learning.draw_learning(results, scale, directory / "learning.png")


PAPER = Paper(
    folder="003-dmcaf",
    package=PACKAGE,
    scales=SCALES,
    parts={"all": _cells},
    judged=judged,
    modules=("fullrank_dmcaf.paper", "fullrank_dmcaf.learning"),
    values=_values,
    draw=_draw,
)
