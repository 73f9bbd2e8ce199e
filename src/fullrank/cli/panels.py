"""Panels of the figures of runs: their curves, evaluations and horizontal axes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, cycle
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fullrank.cli.figures import blank, tidy
from fullrank.common.errors import FullrankError
from fullrank.common.text import drawn
from fullrank.config.toml import read_config
from fullrank.config.tree import RunConfig
from fullrank.runs.aggregates import moving_mean
from fullrank.runs.evaluations import EvaluationRecord, read_evaluations
from fullrank.runs.record import METRICS, IterationRecord, read_records
from fullrank.runs.scalars import RETURN, STEPS, STEPS_PER_S, WIN_RATE, intervals, series

T = TypeVar("T")


_NAMES = {RETURN: "all agents", WIN_RATE: "won", STEPS_PER_S: "played"}
"""Names of curves by tag; the name of a side's return is the side, other tags are names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Content of one pair of axes."""

    label: str
    tags: Callable[[Iterable[str]], Sequence[str]]
    """Tags of the curves among all tags of a run."""
    scale: str = "linear"
    bounds: tuple[float, float] | None = None

    def curves(self, numbers: Mapping[str, T]) -> dict[str, T]:
        """The numbers of the panel by the names of its curves, out of numbers by tag."""
        return {
            _NAMES.get(tag, tag.removeprefix("return/")): numbers[tag]
            for tag in self.tags(numbers)
            if tag in numbers
        }


def _returns(tags: Iterable[str]) -> Sequence[str]:
    """The return of each side, or of all agents where there is one side."""
    sides = [tag for tag in tags if tag.startswith("return/") and tag != RETURN]
    return sides if len(sides) > 1 else (RETURN,)


def _named(*names: str) -> Callable[[Iterable[str]], Sequence[str]]:
    """Tags of these names, and those of each group of agents."""
    return lambda tags: [tag for tag in tags if tag.partition("/")[0] in names]


RETURNS = Panel(label="mean episode return", tags=_returns)
PANELS = (
    RETURNS,
    Panel(label="win rate", tags=_named(WIN_RATE), bounds=(-0.02, 1.02)),
    Panel(
        label="error",
        tags=_named("loss", "td_error_abs", "td_loss", "critic_loss", "qf1_loss", "value_loss"),
        scale="log",
    ),
    Panel(label="value", tags=_named("q_taken_mean", "q_values", "qf1_values", "target_mean")),
    Panel(label="loss of the policy", tags=_named("actor_loss", "policy_loss")),
    Panel(label="entropy of the policy", tags=_named("entropy")),
    Panel(label="weight of the entropy", tags=_named("alpha"), scale="log"),
    Panel(label="change of the policy", tags=_named("approx_kl", "clipfrac")),
    Panel(label="norm of the gradient", tags=_named("grad_norm"), scale="log"),
    Panel(label="environment steps / s", tags=_named(STEPS_PER_S)),
)
"""Panels above that of the round times, each drawn if a run has its numbers."""


BESIDE = (1.0, 1.02)
"""Place of a panel's legend, right of its curves."""
_WINDOWS_PER_RUN = 40
"""Number of moving-mean windows in a run."""


class Abscissa(StrEnum):
    """Horizontal axis of curves of training."""

    UPDATES = "updates"
    STEPS = "steps"
    SECONDS = "seconds"
    MACHINE_SECONDS = "machine-seconds"

    def of(self, records: Sequence[IterationRecord]) -> Mapping[int, float]:
        """Place of each iteration.

        Seconds are those of training, without its interruptions; machine seconds are these times
        the processes at work: learners that were assigned rows, and the controller where it is a
        process of its own; collectors are not counted.

        Raises:
            FullrankError: An earlier version has not recorded the environment steps.
        """
        if self is Abscissa.UPDATES:
            return {record.iteration: record.iteration for record in records}
        if self is Abscissa.STEPS:
            steps = series(records).get(STEPS, {})
            if len(steps) < len(records):
                raise FullrankError("a run has no environment steps; choose another --x")
            return steps
        spent: Iterable[float] = (record.spent_s for record in records)
        if self is Abscissa.MACHINE_SECONDS:
            spent = (each * _processes(record) for each, record in zip(spent, records, strict=True))
        return dict(zip((each.iteration for each in records), accumulate(spent), strict=True))


LABELS = {
    Abscissa.UPDATES: "iteration",
    Abscissa.STEPS: "environment steps",
    Abscissa.SECONDS: "seconds of training",
    Abscissa.MACHINE_SECONDS: "seconds of learners and controller",
}


def _processes(record: IterationRecord) -> int:
    """Number of processes that worked on an iteration."""
    return max(1, len(record.rows)) + bool(record.bytes_sent)


Looks: TypeAlias = Sequence[tuple[str, str]]
"""Colour and line style of each side."""
Curves: TypeAlias = Mapping[str, Mapping[float, float]]
"""Numbers by name and place on the horizontal axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Data of one run that is drawn."""

    directory: Path
    config: RunConfig
    records: Sequence[IterationRecord]
    """At least one."""
    evaluations: Sequence[EvaluationRecord]

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the files of a run.

        Raises:
            FullrankError: One is missing or damaged, or there is no iteration yet.
        """
        records = read_records(directory / METRICS)
        if not records:
            raise FullrankError(
                f"{directory} has no finished iteration yet; there is nothing to plot"
            )
        return cls(
            directory=directory,
            config=read_config(directory),
            records=records,
            evaluations=read_evaluations(directory),
        )


def new_figure(
    title: str, panels: Sequence[Panel], *, x: Abscissa, columns: int = 1
) -> tuple[Figure, Any]:
    """A figure, and its axes by row and column: those of the panels, and of round times."""
    width = 10.5 if columns == 1 else 7.0 * columns
    figure = blank(width, 4 + 2 * len(panels))
    heights = (3, *[2.4] * (len(panels) - 1), 2)
    grid = figure.subplots(
        len(heights), columns, sharex="col", height_ratios=heights, squeeze=False
    )
    figure.suptitle(title, fontsize=11)
    for column in grid.T:
        *all_axes, rounds = column
        for axes, panel in zip(all_axes, panels, strict=True):
            axes.set_ylabel(panel.label)
            axes.set_yscale(panel.scale)
            if panel.bounds is not None:
                axes.set_ylim(panel.bounds)
        rounds.set_ylabel("round time (s)")
        rounds.set_xlabel(LABELS[x])
        if x is Abscissa.UPDATES:
            rounds.xaxis.get_major_locator().set_params(integer=True)
        for axes in column:
            tidy(axes)
    return figure, grid


def draw_curves(axes: Axes, curves: Curves, looks: Looks, *, window: int, name: str = "") -> None:
    """Draw each side's moving mean over its raw values; ``name`` labels the run."""
    for (side, values), (colour, style) in zip(curves.items(), cycle(looks), strict=False):
        places = sorted(values)
        raw = np.array([values[place] for place in places])
        axes.plot(places, raw, color=colour, alpha=0.25 if not name else 0.1, linewidth=0.8)
        called = f"{name} {side if len(curves) > 1 else ''}".strip() if name else side
        label = drawn(f"{called}, mean of {window}" if window > 1 else called)
        smooth = moving_mean(raw, window)
        axes.plot(places, smooth, color=colour, linestyle=style, linewidth=1.8, label=label)


def draw_evaluations(
    axes: Axes,
    evaluations: Sequence[EvaluationRecord],
    looks: Looks,
    *,
    panel: Panel,
    terms: Mapping[int, int],
    at: Mapping[int, float],
    name: str = "",
) -> None:
    """Draw points with intervals for each side; superseded ones are hollow."""
    superseded = [record for record in evaluations if record.superseded(terms)]
    current = [record for record in evaluations if not record.superseded(terms)]
    for chosen, fill, what in (
        (current, None, "greedily"),
        (superseded, "none", "greedily, superseded"),
    ):
        if not chosen:
            continue
        played = [(record.iteration, panel.curves(intervals(record))) for record in chosen]
        sides = list(dict.fromkeys(side for _, curves in played for side in curves))
        for side, (colour, _) in zip(sides, looks, strict=False):
            called = side if len(sides) > 1 else ""
            places = [iteration for iteration, curves in played if side in curves]
            mean, low, high = np.array([curves[side] for _, curves in played if side in curves]).T
            axes.errorbar(
                np.interp(places, list(at), list(at.values())),
                mean,
                yerr=np.maximum((mean - low, high - mean), 0.0),
                fmt="o",
                markersize=4,
                markerfacecolor=fill,
                color=colour,
                capsize=2,
                label=drawn(" ".join(filter(None, (name, called, what)))),
            )


def explain(axes: Axes) -> None:
    """Add the legend, or say that there is nothing to explain."""
    if axes.lines:
        axes.legend(loc="upper left", bbox_to_anchor=BESIDE, frameon=False, fontsize=9)
    else:
        axes.text(0.5, 0.5, "no episode has ended yet", ha="center", transform=axes.transAxes)


def window_of(lengths: Iterable[int]) -> int:
    """Window of the moving mean, common to curves of the given lengths."""
    return max(1, max(lengths, default=0) // _WINDOWS_PER_RUN)
