"""``fullrank plot``: plots of returns, win rates, losses and round times of runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Annotated, TypeAlias

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fullrank.cli.figures import COLOURS, STYLES, draw_band, looks_of, save
from fullrank.cli.panels import (
    BESIDE,
    PANELS,
    RETURNS,
    Abscissa,
    Panel,
    Story,
    draw_curves,
    draw_evaluations,
    explain,
    new_figure,
    window_of,
)
from fullrank.cli.runs import find_run, named
from fullrank.cli.say import say
from fullrank.common.text import drawn
from fullrank.config.elsewhere import compared
from fullrank.config.tree import RunConfig
from fullrank.environments import variant_of
from fullrank.environments.base import is_adapted
from fullrank.runs.aggregates import band, interquartile_mean, on_grid, places
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord, begun
from fullrank.runs.scalars import STEPS, series

_LATE_COLOURS = ("#9aa5b1", "#e69f00", "#d55e00", "#a3006a")
"""Colour by number of late learners: none, one, two, more."""
MARKS = 6
"""Most iterations whose environment steps are marked."""
_LOGARITHMIC_FROM = 20.0
"""Ratio of the slowest to the median round from which the axis is logarithmic."""

Levels: TypeAlias = Mapping[str, float]
"""Mean returns by name."""


def plot(
    runs: Annotated[list[str], typer.Argument(help="Run directories, or their names below runs/.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="PNG to write; default: <run>/plot.png, or plot.png for several runs."
        ),
    ] = None,
    x: Annotated[
        Abscissa, typer.Option("--x", help="Horizontal axis; seconds are those of training.")
    ] = Abscissa.UPDATES,
) -> None:
    """Plot return, win rate and loss if any, and round time, of one run or several.

    Runs that differ in their seed alone are one curve: their interquartile mean, the mean of fewer
    than four, in a 95 % band. Lines show random and good play where they are known.
    """
    stories = [Story.read(find_run(run)) for run in runs]
    if len(stories) == 1:
        (story,) = stories
        title, levels = _title(story.config), _levels(story.config)
        figure = draw(story.records, story.evaluations, title=title, x=x, levels=levels)
        picture = output or story.directory / "plot.png"
    else:
        figure = draw_together(stories, x=x, levels=_levels)
        picture = output or Path("plot.png")
    save(figure, picture)
    say(picture)


def draw(
    records: Sequence[IterationRecord],
    evaluations: Sequence[EvaluationRecord] = (),
    *,
    title: str,
    x: Abscissa = Abscissa.UPDATES,
    levels: Levels = MappingProxyType({}),
) -> Figure:
    """Panels over a common axis: return, other recorded curves, and seconds per round.

    These are the win rate where there are wins, and the loss and the values of actions where there
    are statistics of learning.

    Args:
        records: Iterations, at least one.
        evaluations: Evaluations of greedy policies, drawn with their intervals over the curves;
            superseded ones are hollow.
        title: Title of the figure.
        x: Horizontal axis.
        levels: Returns that are drawn as lines, by name.
    """
    at = x.of(records)
    numbers = _placed(records, at)
    panels = [panel for panel in PANELS if panel is RETURNS or panel.curves(numbers)]
    figure, grid = new_figure(title, panels, x=x)
    *all_axes, rounds = grid[:, 0]
    looks = [(colour, style) for style in STYLES for colour in COLOURS]
    for axes, panel in zip(all_axes, panels, strict=True):
        curves = panel.curves(numbers)
        draw_curves(axes, curves, looks, window=window_of(map(len, curves.values())))
        draw_evaluations(axes, evaluations, looks, panel=panel, terms=begun(records), at=at)
        if panel is RETURNS:
            _draw_levels(axes, levels)
        explain(axes)
    _draw_rounds(rounds, records, at)
    if STEPS in numbers and x is Abscissa.UPDATES:
        _count_steps(all_axes[0], numbers[STEPS])
    return figure


def _count_steps(axes: Axes, steps: Mapping[float, float]) -> None:
    """Mark the environment steps until some iterations above the uppermost panel."""
    began = dict[float, float]()  # where several updates follow a collection, its first one
    for iteration in sorted(steps):
        began.setdefault(steps[iteration], iteration)
    chosen = [*began.values()][:: -(-len(began) // MARKS)]
    above = axes.secondary_xaxis("top")
    above.set_xticks(chosen, [f"{steps[iteration]:,.0f}" for iteration in chosen])
    above.set_xlabel("environment steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedGroup:
    """Runs of one task that differ in their seed alone."""

    name: str
    """The method, or the directory of a single run."""
    stories: Sequence[Story]


def _groups(stories: Sequence[Story]) -> dict[str, list[SeedGroup]]:
    """Groups by task; a second run of a seed belongs to a group of its own."""
    names = places([compared(replace(story.config, seed=0)) for story in stories])
    seen: Counter[tuple[str, str, int]] = Counter()
    found: dict[tuple[str, str, int], list[Story]] = {}
    for (task, method), story in zip(names, stories, strict=True):
        key = (task, method, story.config.seed)
        found.setdefault((task, method, seen[key]), []).append(story)
        seen[key] += 1
    groups: dict[str, list[SeedGroup]] = {}
    for (task, method, _), alike in found.items():
        name = method if len(alike) > 1 else alike[0].directory.name
        groups.setdefault(task, []).append(SeedGroup(name=name, stories=alike))
    return groups


def draw_together(
    stories: Sequence[Story],
    *,
    x: Abscissa = Abscissa.UPDATES,
    levels: Callable[[RunConfig], Levels] = lambda config: {},
) -> Figure:
    """The panels of ``draw`` for several runs: column by task, colour by group, style by side.

    A group of several runs is an interquartile mean in its band, a single run a moving mean.
    """
    groups = _groups(stories)
    panels = [
        panel
        for panel in PANELS
        if panel is RETURNS or any(panel.curves(series(story.records)) for story in stories)
    ]
    titles = dict.fromkeys(_task(story.config) for story in stories)
    title = " · ".join(titles) if len(groups) == 1 else ""
    figure, grid = new_figure(title, panels, x=x, columns=len(groups))
    looks = looks_of(dict.fromkeys(group.name for each in groups.values() for group in each))
    for (task, alike), column in zip(groups.items(), grid.T, strict=True):
        if len(groups) > 1:
            column[0].set_title(drawn(task), fontsize=11)
        for group in alike:
            _draw_group(column, panels, group, looks[group.name][0], x)
        _draw_levels(column[0], levels(alike[0].stories[0].config))
        for axes, panel in zip(column, panels, strict=False):
            _name_styles(axes, panel, alike)
        column[-1].set_ylim(bottom=0)
    found = [axes.get_legend_handles_labels() for axes in grid.flat]
    handles = {label: handle for each in found for handle, label in zip(*each, strict=True)}
    width = 3 if max(map(len, handles), default=0) > 24 else 4
    look = {"ncols": width, "frameon": False, "fontsize": 9}
    figure.legend(handles.values(), handles, loc="outside lower center", **look)
    return figure


def _name_styles(axes: Axes, panel: Panel, groups: Sequence[SeedGroup]) -> None:
    """Name the line styles of the curves of a panel that several seeds have, or say it is empty."""
    if not axes.lines:
        reason = "no episode has ended yet" if panel is RETURNS else "not recorded for this task"
        axes.text(0.5, 0.5, reason, ha="center", transform=axes.transAxes)
    seeds = [group for group in groups if len(group.stories) > 1]
    found = seeds[0].stories[0].records if seeds else []
    names = [*_few(panel.curves(_placed(found, Abscissa.UPDATES.of(found))))]
    if len(names) > 1 or "mean of" in "".join(names):
        lines = [
            Line2D([], [], color="#333333", linestyle=style, label=drawn(name))
            for name, style in zip(names, cycle(STYLES), strict=False)
        ]
        axes.legend(
            handles=lines, loc="upper left", bbox_to_anchor=BESIDE, frameon=False, fontsize=9
        )


def _draw_group(
    column: Sequence[Axes], panels: Sequence[Panel], group: SeedGroup, colour: str, x: Abscissa
) -> None:
    """Draw the curves of a group into the axes of its task."""
    looks = [(colour, style) for style in STYLES]
    ats = [x.of(story.records) for story in group.stories]
    numbers = [_placed(s.records, at) for s, at in zip(group.stories, ats, strict=True)]
    for axes, panel in zip(column, panels, strict=False):
        curves = [panel.curves(each) for each in numbers]
        if len(curves) > 1:
            curves = [_few(each) for each in curves]
            label = f"{group.name}, {len(curves)} seeds"
            sides = dict.fromkeys(side for each in curves for side in each)
            for side, look in zip(sides, cycle(looks), strict=False):
                _draw_seeds(axes, [each[side] for each in curves if each.get(side)], look, label)
            continue
        window = window_of(map(len, curves[0].values()))
        draw_curves(axes, curves[0], looks, window=window, name=group.name)
        (story,), terms = group.stories, begun(group.stories[0].records)
        draw_evaluations(
            axes, story.evaluations, looks, panel=panel, terms=terms, at=ats[0], name=group.name
        )
    rounds = [
        {at[record.iteration]: record.round_s for record in story.records}
        for story, at in zip(group.stories, ats, strict=True)
    ]
    _draw_seeds(column[-1], rounds, (colour, "-"), "")


def _few(curves: dict[str, dict[float, float]]) -> dict[str, dict[float, float]]:
    """The curves of a panel, or their mean where they are more than line styles."""
    if len(curves) <= len(STYLES):
        return curves
    common = set.intersection(*map(set, curves.values()))
    name = next(iter(curves)).partition("/")[0]
    mean = {at: fmean(each[at] for each in curves.values()) for at in sorted(common)}
    return {f"{name}, mean of {len(curves)}": mean}


def _draw_seeds(
    axes: Axes, curves: Sequence[Mapping[float, float]], look: tuple[str, str], label: str
) -> None:
    """Draw the centre of the curves of several seeds in its band."""
    if curves:
        grid, values = on_grid(curves)
        draw_band(axes, grid, band([values], interquartile_mean), look, label=label)


def _placed(
    records: Sequence[IterationRecord], at: Mapping[int, float]
) -> dict[str, dict[float, float]]:
    """Numbers of iterations by tag and place."""
    return {
        tag: {at[iteration]: value for iteration, value in values.items()}
        for tag, values in series(records).items()
    }


REFERENCE_EPISODES = 20
"""Episodes of a reference policy: a fifth of a second."""


def _levels(config: RunConfig) -> Levels:
    """Mean returns of the reference policies of a task of this package with one side."""
    if is_adapted(config.environment.name):
        return {}
    from fullrank.cli.policies import play_references  # imports torch
    from fullrank.training.references import GOOD, RANDOM

    played = play_references(config, episodes=REFERENCE_EPISODES, seed=0)
    return {
        f"{name} play, {REFERENCE_EPISODES} episodes": float(each.returns.mean())
        for name, each in played.items()
        if len(each.side_returns) == 1 and name in (RANDOM, GOOD)
    }


def _draw_levels(axes: Axes, levels: Levels) -> None:
    for (name, value), style in zip(levels.items(), (":", "--"), strict=False):
        axes.axhline(value, color="#333333", linewidth=1.1, linestyle=style, label=drawn(name))


def _draw_rounds(axes: Axes, records: Sequence[IterationRecord], at: Mapping[int, float]) -> None:
    late = np.minimum([len(record.late) for record in records], len(_LATE_COLOURS) - 1)
    iterations = np.array([at[record.iteration] for record in records])
    round_s = np.array([record.round_s for record in records])
    for number, colour in enumerate(_LATE_COLOURS):
        chosen = late == number
        if chosen.any():
            more = " or more" if number == len(_LATE_COLOURS) - 1 else ""
            label = f"{number}{more} late"
            axes.scatter(iterations[chosen], round_s[chosen], s=9, color=colour, label=label)
    median = float(np.median(round_s))
    axes.axhline(
        median, color="#333333", linewidth=0.9, linestyle="--", label=f"median {median:.3g} s"
    )
    if round_s.max() > _LOGARITHMIC_FROM * median > 0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    above = (1.0, 0.98)
    axes.legend(loc="lower right", bbox_to_anchor=above, ncols=5, frameon=False, fontsize=9)


def _title(config: RunConfig) -> str:
    units = f", M = {config.environment.agents}" if config.environment.agents else ""
    return (
        f"{_task(config)}, seed {config.seed}\n"
        f"code: {drawn(named(config.code))} · N = {config.learners}{units} · "
        f"stragglers: {drawn(named(config.stragglers))}"
    )


def _task(config: RunConfig) -> str:
    """Algorithm and environment."""
    variant = variant_of(config.environment.name, config.environment.params)
    return drawn(f"{config.algorithm.name} on {config.environment.name} ({variant})")
