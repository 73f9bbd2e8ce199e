"""Tables and pictures of the reproduction of [CMARL]."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from fullrank_reproduction import pictures
from fullrank_reproduction.cmarl.claims import BY_ACTORS
from fullrank_reproduction.cmarl.learning import BEST_RETURN, Courses
from fullrank_reproduction.cmarl.systems import SYSTEMS, CmarlBudget

COLOURS: Final = {
    "cmarl": "#0072b2",
    "qmix": "#9aa5b1",
    "cmarl-no-diversity": "#e69f00",
    "parallel-v2": "#cc79a7",
    "parallel": "#d55e00",
    "apex": "#009e73",
    "apex-overload": "#8fd0bc",
    "cmarl-2-containers": "#3a8fc4",
    "cmarl-8-actors": "#6bacd6",
    "cmarl-1-container": "#9cc9e6",
    "cmarl-2-actors": "#c6e0f2",
}
"""Colours by system; configurations of Fig. 5 fade with their actors."""
PANELS: Final = {
    "Figs. 2 and 4: QMIX": ("cmarl", "qmix"),
    "Fig. 5: actors and diversity": (*BY_ACTORS, "cmarl-no-diversity"),
    "Figs. 6 and 7: other distributed systems": (
        "cmarl",
        "apex",
        "apex-overload",
        "parallel",
        "parallel-v2",
    ),
}


def draw_learning(courses: Courses, budget: CmarlBudget, path: Path) -> None:
    """Draw mean returns against virtual time: a row of panels for each map."""
    maps = [name for name in budget.maps if any(courses.seeds(each, name) for each in SYSTEMS)]
    figure = pictures.blank(width=11.0, height=2.8 * len(maps) + 0.6)
    cells = figure.subplots(len(maps), len(PANELS), squeeze=False, sharex=True, sharey="row")
    for row, scenario in zip(cells, maps, strict=True):
        for axes, (title, names) in zip(row, PANELS.items(), strict=True):
            for name in names:
                seeds = courses.seeds(name, scenario)
                curves = [courses.curve(name, scenario, seed, "return_mean") for seed in seeds]
                if not curves:
                    continue
                times = courses.curve(name, scenario, seeds[0], "time_s")
                for curve in curves:
                    axes.plot(times, curve, color=COLOURS[name], linewidth=0.5, alpha=0.5)
                axes.plot(
                    times,
                    np.mean(curves, axis=0),
                    color=COLOURS[name],
                    label=SYSTEMS[name].label,
                    linewidth=1.8,
                )
            axes.set_title(f"{scenario}; {title}", fontsize=9)
            axes.legend(frameon=False, fontsize=7)
            pictures.tidy(axes)
        row[0].set_ylabel(f"return, of {BEST_RETURN:g}")
    for axes in cells[-1]:
        axes.set_xlabel("virtual time, s")
    figure.savefig(path, dpi=pictures.DPI)


def draw_systems(courses: Courses, path: Path) -> None:
    """Draw the mean area of each system, and the episodes and updates of each."""
    names = [name for name in SYSTEMS if courses.pairs([name])]
    figure = pictures.blank(width=11.0, height=3.6)
    learnt, done = figure.subplots(1, 2)
    places = np.arange(len(names))
    areas = [[courses.area(name, *each) for each in courses.pairs([name])] for name in names]
    colours = [COLOURS[name] for name in names]
    learnt.bar(places, [np.mean(each) for each in areas], color=colours)
    for place, each in zip(places, areas, strict=True):
        learnt.plot(np.full(len(each), place), each, "o", color="black", markersize=2)
    learnt.set_title("Mean return over the run, share of the best; dots: runs", fontsize=10)
    episodes = [np.mean([each["episodes"] for each in courses.facts(name)]) for name in names]
    updates = [np.mean([each["iterations"] for each in courses.facts(name)]) for name in names]
    done.bar(places - 0.2, episodes, 0.4, color=colours, label="episodes")
    done.bar(places + 0.2, updates, 0.4, color=colours, alpha=0.5, label="updates (pale)")
    done.set_yscale("log")
    done.set_title("Episodes played, and updates beside them (pale)", fontsize=10)
    for axes in (learnt, done):
        labels = [SYSTEMS[name].label for name in names]
        axes.set_xticks(places, labels, rotation=40, ha="right", fontsize=8)
        pictures.tidy(axes)
    figure.savefig(path, dpi=pictures.DPI)


def draw_collection(rates: Sequence[float], path: Path) -> None:
    """Draw episodes a second against the number of containers."""
    figure = pictures.blank(width=4.6, height=3.2)
    axes = figure.subplots()
    counts = np.arange(1, len(rates) + 1)
    axes.bar(counts, rates, 0.6, color="#0072b2")
    axes.plot(counts, rates[0] * counts, "o--", color="black", markersize=4, label="linear")
    axes.set_xticks(counts)
    axes.set_xlabel("containers of 13 actors, services")
    axes.set_ylabel("episodes a second")
    axes.legend(frameon=False)
    pictures.tidy(axes)
    figure.savefig(path, dpi=pictures.DPI)


def table(courses: Courses) -> str:
    """Results of the systems, as a Markdown table."""
    lines = [
        "| system | actors | runs | episodes | updates | mean return, share | won at the end |",
        "|---" * 7 + "|",
    ]
    for name, system in SYSTEMS.items():
        pairs, facts = courses.pairs([name]), courses.facts(name)
        if not pairs:
            lines.append(f"| {system.label} | {system.actors} | 0 | - | - | - | - |")
            continue
        episodes, updates = (
            np.mean([each[key] for each in facts]) for key in ("episodes", "iterations")
        )
        areas = [courses.area(name, *each) for each in pairs]
        won = [courses.won(name, *each) for each in pairs]
        lines.append(
            f"| {system.label} | {system.actors} | {len(pairs)} | {episodes:.0f} | {updates:.0f} | "
            f"{np.mean(areas):.3f} ({min(areas):.3f} to {max(areas):.3f}) | {np.mean(won):.2f} |"
        )
    return "\n".join(lines)


def table_by_map(courses: Courses, budget: CmarlBudget) -> str:
    """Mean areas by system and map, as a Markdown table."""
    lines = ["| system | " + " | ".join(budget.maps) + " |", "|---" * (1 + len(budget.maps)) + "|"]
    for name, system in SYSTEMS.items():
        cells = []
        for scenario in budget.maps:
            seeds = courses.seeds(name, scenario)
            areas = [courses.area(name, scenario, seed) for seed in seeds]
            won = [courses.won(name, scenario, seed) for seed in seeds]
            cells.append(f"{np.mean(areas):.3f}, {np.mean(won):.2f}" if areas else "-")
        lines.append(f"| {system.label} | {' | '.join(cells)} |")
    return "\n".join(lines)
