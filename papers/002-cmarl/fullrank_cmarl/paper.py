"""Paper 002: its parts, tables and pictures.

Claim C11 is collection by several containers of 13 actors in equal time, on real services. Steps of
the game take an emulated time, so that two cores stand for many game processes. Collectors of 13
copies play and hand over as containers do, and do not learn.

Differences from the paper:

- Games are those of SMAC-lite, a model of SMAC's battles, and time is virtual.
- Networks and batches are smaller, the rate higher, and runs of seconds, not of hours.
- QMIX and QPLEX update from 100 steps of their one actor on, QMIX-BETA from the first episodes of
  its 39, CMARL and APE-X from 16 episodes.
- At the smoke scale all centralisers draw uniformly, all explore by one epsilon, and a container
  updates a quarter as often as the centraliser. At larger ones it updates as often, and CMARL's
  and APE-X's learners draw episodes by the sum over their steps of 1 + floor(10 |x|): x is a reward
  in CMARL, not a container's priority, and in APE-X the temporal difference that the actor had when
  it played, which is not renewed. Each episode has an epsilon from the base to four times it.
- APE-X's learner updates at most once for each episode.
- APE-X is overloaded by 16 actors, as in the paper on 6h_vs_8z: with its 10 cores steps, choices of
  actions and updates take 1.6 times as long.
- The copies of a container step in lockstep as arrays and hand over a block when its longest
  episode ends: no actor goes on by itself, and there is no multi-queue or buffer manager.
- RODE, CDS, Google Research Football and StarCraft II are not run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from fullrank.algorithms.values import ValueLearner
from fullrank.common.types import JSON
from fullrank.runs.record import IterationRecord
from fullrank.wiring.plugins import algorithm_config_of
from fullrank_cmarl import queues
from fullrank_cmarl.claims import BY_ACTORS, judge_independent, judge_learning, judge_share
from fullrank_cmarl.systems import (
    PACKAGE,
    SCALES,
    SYSTEMS,
    CmarlScale,
    Courses,
    cells,
    independent_cells,
)
from fullrank_papers import pictures
from fullrank_papers.cells import Cell, Results
from fullrank_papers.claims import CIRCULAR, ClaimResult, Judgement, judge, undecided
from fullrank_papers.paper import Findings, Paper, table
from fullrank_papers.runs import configured, observe

ACTORS: Final = 13
CONTAINERS: Final = (1, 2, 3)
LEAST_SHARE: Final = 0.9
"""Asked share of what so many containers would collect if each were alone."""
SETTLING: Final = 2
"""Iterations that are not counted."""
SMALL: Final = (
    *("algorithm.name=qmix", "algorithm.batch_size=4", "algorithm.hidden=16"),
    *("algorithm.micro_batches=1", "environment.name=smac_lite", "environment.map=3m"),
    *("learners=1", "code.name=uncoded", "audit.every=0", "checkpoint.every=1000000"),
    *("collect.max_lag=1000000", "metrics.sinks=[]"),
)


def collection_settings(containers: int, *, step_s: float, iterations: int) -> list[str]:
    """Return the settings of a run whose collectors never wait for the learner.

    Args:
        containers: Number of collectors.
        step_s: Emulated time of a step.
        iterations: Iterations that are counted, each of one episode of every actor.
    """
    actors = containers * ACTORS
    return [
        *SMALL,
        f"collectors.count={containers}",
        f"collect.block={ACTORS}",
        f"environment.copies={actors}",
        f"collect.warmup_episodes={actors}",
        f"collect.window={100 * actors}",
        f"compute.emulate_step_s={step_s}",
        f"iterations={SETTLING + iterations}",
    ]


def episodes_per_s(seen: Sequence[tuple[float, IterationRecord]]) -> float:
    """Return the episodes that were stored in a second after the first iterations.

    Args:
        seen: Iterations with when each was seen, in seconds.
    """
    (began_s, first), (ended_s, last) = seen[SETTLING - 1], seen[-1]
    counts = [each.statistics["episodes"] or 0.0 for each in (first, last)]
    return (counts[1] - counts[0]) / (ended_s - began_s)


def collection_name(containers: int) -> str:
    """The name of a cell."""
    return f"collection-{containers}"


def collection_cells(*, step_s: float, iterations: int) -> list[Cell]:
    """Episodes a second of one, two and three collectors of 13 copies.

    Args:
        step_s: Emulated time of a step.
        iterations: Counted iterations of each.
    """
    settings = {
        containers: collection_settings(containers, step_s=step_s, iterations=iterations)
        for containers in CONTAINERS
    }
    return [
        Cell(
            name=collection_name(containers),
            settings={"settings": own},
            compute=partial(_collected, own),
            weight=60.0 * step_s * iterations,
        )
        for containers, own in settings.items()
    ]


def _collected(settings: Sequence[str]) -> JSON:
    return {"episodes_per_s": episodes_per_s(observe(configured(*settings, topology="awl")))}


def collection_rates(results: Results) -> list[float]:
    """Return the episodes a second by number of containers, those that were measured."""
    names = (collection_name(containers) for containers in CONTAINERS)
    return [results[name]["episodes_per_s"] for name in names if name in results]


def judge_collection(results: Results) -> ClaimResult:
    """Judge claim C11."""
    claim = "C11: collection grows with the number of containers."
    found = collection_rates(results)
    if len(found) < len(CONTAINERS):
        return undecided(claim, "`--only services` measures it")
    shares = [rate / (count * found[0]) for count, rate in zip(CONTAINERS, found, strict=True)]
    said = ", ".join(
        f"{count}: {rate:.1f}/s, {share:.0%}"
        for count, rate, share in zip(CONTAINERS, found, shares, strict=True)
    )
    said = f"steps are sleeps, which add up; episodes, and their share of linear growth: {said}"
    return judge(
        claim,
        [said] if min(shares) < LEAST_SHARE else [],
        grounds=said,
        strength=CIRCULAR,
    )


CmarlFindings: TypeAlias = Findings[CmarlScale]

PANELS: Final = {
    "Figs. 2 and 4: QMIX and QPLEX": ("cmarl", "qmix", "qplex"),
    "Fig. 5: actors and diversity": (*BY_ACTORS, "cmarl-no-diversity"),
    "Figs. 6 and 7: distributed": (
        "cmarl",
        "apex",
        "apex-overload",
        "parallel",
        "parallel-v2",
    ),
}


def elsewhere(found: CmarlFindings) -> tuple[Courses, CmarlScale]:
    """The courses on SMAX, and their scale."""
    scale = replace(found.scale, maps=found.scale.independent, more_curves={})
    return Courses(found.results, scale), scale


def judged(found: CmarlFindings) -> Judgement:
    """Results by source."""
    courses = Courses(found.results, found.scale)
    apart = elsewhere(found)
    return {
        **judge_learning(courses, found.scale),
        **({"SMAX": [judge_independent(*apart)]} if found.scale.independent else {}),
        "Sec. 2.1": [queues.judge_queues(found.results)],
        "Sec. 2.2": [judge_share(courses)],
        "Sec. 2": [judge_collection(found.results)],
    }


def _values(found: CmarlFindings) -> Mapping[str, Any]:
    scale, courses = found.scale, Courses(found.results, found.scale)
    values = {
        "durations": scale.durations,
        "containers": scale.container_settings,
        "every_s": scale.until_s / scale.points,
        "maps": ", ".join(scale.maps),
        "seeds": len(scale.seeds),
        "own_settings": f"`{' '.join(scale.own_settings)}`" if scale.own_settings else "no others",
        "settings": " ".join(scale.settings),
        "v2_settings": " ".join(scale.v2_settings),
    }
    if courses.computed:
        values |= {
            "computed": courses.computed,
            "runs": sum(len(scale.seeds_of(name)) for name in SYSTEMS) * len(scale.maps),
            "systems": _systems(courses, scale),
            "by_map": _by_map(courses, scale),
        }
    if (apart := elsewhere(found))[0].computed:
        values["independent"] = _by_map(*apart)
    if collection_rates(found.results):
        values["collected"] = ""
    return values


def _systems(courses: Courses, scale: CmarlScale) -> str:
    rows = []
    for name, system in SYSTEMS.items():
        pairs, facts = courses.pairs([name]), courses.facts(name)
        row: list[object] = [system.label, system.actors, len(pairs)]
        if not pairs:
            rows.append([*row, "-", "-", "-", "-", "-"])
            continue
        steps = [int(courses.curve(name, *each, "env_steps")[-1]) for each in pairs]
        explorer = algorithm_config_of(scale.config(name, *pairs[0]))
        assert isinstance(explorer, ValueLearner)
        ends = list(map(explorer.exploration, steps))
        areas = [courses.area(name, *each) for each in pairs]
        won = [courses.won(name, *each) for each in pairs]
        for key in ("episodes", "iterations"):
            row.append(f"{np.mean([each[key] for each in facts]):.0f}")
        row.append(f"{np.mean(ends):.2f}")
        row.append(f"{np.mean(areas):.3f} ({min(areas):.3f} to {max(areas):.3f})")
        rows.append([*row, f"{np.mean(won):.2f}"])
    heads = ("system", "actors", "runs", "episodes", "updates", "epsilon", "mean return, share")
    return table([*heads, "won"], rows)


def _by_map(courses: Courses, scale: CmarlScale) -> str:
    rows = []
    for name, system in SYSTEMS.items():
        row = [system.label]
        for scenario in scale.maps:
            seeds = courses.seeds(name, scenario)
            areas = [courses.area(name, scenario, seed) for seed in seeds]
            won = [courses.won(name, scenario, seed) for seed in seeds]
            row.append(f"{np.mean(areas):.3f}, {np.mean(won):.2f}" if areas else "-")
        rows += [row] if courses.pairs([name]) else []
    return table(["system", *scale.maps], rows)


def _draw(found: CmarlFindings, directory: Path) -> None:
    courses = Courses(found.results, found.scale)
    if courses.computed:
        _draw_learning(courses, found.scale, directory / "learning.png")
        _draw_systems(courses, directory / "systems.png")
    if rates := collection_rates(found.results):
        _draw_collection(rates, directory / "collection.png")


def _draw_learning(courses: Courses, scale: CmarlScale, path: Path) -> None:
    """Draw win rates against virtual time: a row of panels for each map."""
    maps = [name for name in scale.maps if any(courses.seeds(each, name) for each in SYSTEMS)]
    shown = [(scenario, *panel) for scenario in maps for panel in PANELS.items()]
    titles = [f"{scenario}; {title}" for scenario, title, _ in shown]
    with pictures.panels(path, titles, columns=len(PANELS), size=(3.7, 3.0)) as every:
        for axes, (scenario, _, names) in zip(every, shown, strict=True):
            for name in names:
                seeds = courses.seeds(name, scenario)
                curves = [courses.curve(name, scenario, seed, "win_rate") for seed in seeds]
                if not curves:
                    continue
                times = courses.curve(name, scenario, seeds[0], "time_s")
                colour = SYSTEMS[name].colour
                axes.plot(times, np.transpose(curves), color=colour, linewidth=0.5, alpha=0.5)
                mean, label = np.mean(curves, axis=0), SYSTEMS[name].label
                axes.plot(times, mean, color=colour, label=label, linewidth=1.8)
            axes.legend(frameon=False, fontsize=7)
            axes.set(xlabel="virtual time, s", ylabel="win rate", ylim=(-0.03, 1.03))


def _draw_systems(courses: Courses, path: Path) -> None:
    """Draw the win rate of each system, and the episodes and updates of each."""
    names = [name for name in SYSTEMS if courses.pairs([name])]
    titles = (
        "Win rate over time; dots: runs",
        "Episodes played, and updates beside them (pale)",
    )
    colours, places = [SYSTEMS[name].colour for name in names], np.arange(len(names))
    with pictures.panels(path, titles, size=(5.5, 3.6)) as (learnt, done):
        won = [[courses.won(name, *each) for each in courses.pairs([name])] for name in names]
        learnt.bar(places, [np.mean(each) for each in won], color=colours)
        for place, each in zip(places, won, strict=True):
            learnt.plot(np.full(len(each), place), each, "o", color="black", markersize=2)
        for shift, key, alpha in ((-0.2, "episodes", 1.0), (0.2, "iterations", 0.5)):
            counts = [np.mean([each[key] for each in courses.facts(name)]) for name in names]
            done.bar(places + shift, counts, 0.4, color=colours, alpha=alpha)
        done.set_yscale("log")
        for axes in (learnt, done):
            labels = [SYSTEMS[name].label for name in names]
            axes.set_xticks(places, labels, rotation=40, ha="right", fontsize=8)


def _draw_collection(rates: Sequence[float], path: Path) -> None:
    """Draw episodes a second against the number of containers."""
    counts = np.arange(1, len(rates) + 1)
    with pictures.panels(path, [""], size=(4.6, 3.2)) as (axes,):
        axes.bar(counts, rates, 0.6, color="#0072b2")
        axes.plot(counts, rates[0] * counts, "o--", color="black", markersize=4, label="linear")
        axes.set_xticks(counts)
        axes.set(xlabel="containers of 13 actors, services", ylabel="episodes a second")
        axes.legend(frameon=False)


PAPER = Paper(
    folder="002-cmarl",
    package=PACKAGE,
    scales=SCALES,
    parts={
        "queues": lambda scale: queues.cells(
            scale.config("cmarl-1-container", scale.maps[0], 0),
            seconds=scale.seconds,
            turns=scale.turns,
        ),
        "services": lambda scale: collection_cells(
            step_s=scale.step_s, iterations=scale.iterations
        ),
        "learning": cells,
        "smax": independent_cells,
    },
    judged=judged,
    modules=("fullrank_cmarl.paper", "fullrank.algorithms.container_learner"),
    values=_values,
    draw=_draw,
)
