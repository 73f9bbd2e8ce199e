"""``fullrank plot``: plots of returns, win rates, losses and round times of runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, Self, TypeAlias, TypeVar

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fullrank.cli.runs import find_run, named
from fullrank.cli.say import say
from fullrank.common.errors import FullrankError
from fullrank.common.text import drawn
from fullrank.config.toml import read_config
from fullrank.config.tree import RunConfig
from fullrank.environments import variant_of
from fullrank.runs.evaluations import EvaluationRecord, read_evaluations
from fullrank.runs.record import METRICS, IterationRecord, begun, read_records
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
        label="error", tags=_named("loss", "td_error_abs", "critic_loss", "qf1_loss"), scale="log"
    ),
    Panel(label="value of an action", tags=_named("q_taken_mean", "qf1_values", "target_mean")),
    Panel(label="environment steps / s", tags=_named(STEPS_PER_S)),
)
"""Panels above that of the round times, each drawn if a run has its numbers."""


_LATE_COLOURS = ("#9aa5b1", "#e69f00", "#d55e00", "#a3006a")
"""Colour by number of late learners: none, one, two, more."""
_COLOURS = ("#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#d55e00", "#4a4f55")
"""Colours of the sides of a run, or of several runs, in rotation."""
_STYLES = ("-", "--", ":", "-.")
"""Line styles of the sides when several runs are drawn, and of more curves than colours."""
MARKS = 6
"""Most iterations whose environment steps are marked."""
_WINDOWS_PER_RUN = 40
"""Number of moving-mean windows in a run."""
_LOGARITHMIC_FROM = 20.0
"""Ratio of the slowest to the median round from which the axis is logarithmic."""


def plot(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories, or their names below runs/.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="PNG to write; default: <run>/plot.png, or plot.png for several runs."
        ),
    ] = None,
) -> None:
    """Plot return, win rate and loss if any, and round time by iteration, of one run or several."""
    stories = [Story.read(find_run(run)) for run in runs]
    if len(stories) == 1:
        (story,) = stories
        figure = draw(story.records, story.evaluations, title=_title(story.config))
        picture = output or story.directory / "plot.png"
    else:
        figure = draw_together(stories)
        picture = output or Path("plot.png")
    try:
        figure.savefig(picture, dpi=150)
    except (OSError, ValueError) as error:
        raise FullrankError(f"cannot write {picture}: {error}") from error
    say(picture)


Looks: TypeAlias = Sequence[tuple[str, str]]
"""Colour and line style of each side."""
Curves: TypeAlias = Mapping[str, Mapping[int, float]]
"""Numbers by name and iteration."""


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


def draw(
    records: Sequence[IterationRecord], evaluations: Sequence[EvaluationRecord] = (), *, title: str
) -> Figure:
    """Panels over a common axis: return, other recorded curves, and seconds per round.

    These are the win rate where there are wins, and the loss and the values of actions where there
    are statistics of learning.

    Args:
        records: Iterations, at least one.
        evaluations: Evaluations of greedy policies, drawn with their intervals over the curves;
            superseded ones are hollow.
        title: Title of the figure.
    """
    numbers = series(records)
    panels = [panel for panel in PANELS if panel is RETURNS or panel.curves(numbers)]
    figure, all_axes, rounds = _figure(title, panels)
    looks = [(colour, style) for style in _STYLES for colour in _COLOURS]
    for axes, panel in zip(all_axes, panels, strict=True):
        curves = panel.curves(numbers)
        _draw_curves(axes, curves, looks, window=_window(map(len, curves.values())))
        _draw_evaluations(axes, evaluations, looks, panel=panel, terms=begun(records))
        _explain(axes)
    _draw_rounds(rounds, records)
    if STEPS in numbers:
        _count_steps(all_axes[0], numbers[STEPS])
    return figure


def _count_steps(axes: Axes, steps: Mapping[int, float]) -> None:
    """Mark the environment steps until some iterations above the uppermost panel."""
    chosen = sorted(steps)[:: -(-len(steps) // MARKS)]
    above = axes.secondary_xaxis("top")
    above.set_xticks(chosen, [f"{steps[iteration]:,.0f}" for iteration in chosen])
    above.set_xlabel("environment steps")


def draw_together(stories: Sequence[Story]) -> Figure:
    """The panels of ``draw`` with moving means of several runs: colour by run, style by side."""
    tasks = dict.fromkeys(_task(story.config) for story in stories)
    numbers = [series(story.records) for story in stories]
    panels = [panel for panel in PANELS if panel is RETURNS or any(map(panel.curves, numbers))]
    figure, all_axes, rounds = _figure(" · ".join(tasks), panels)
    rounds_window = _window(len(story.records) for story in stories)
    for axes, panel in zip(all_axes, panels, strict=True):
        curves = [panel.curves(each) for each in numbers]
        window = _window(len(values) for by_side in curves for values in by_side.values())
        for story, by_side, colour in zip(stories, curves, cycle(_COLOURS), strict=False):
            name, looks = story.directory.name, [(colour, style) for style in _STYLES]
            _draw_curves(axes, by_side, looks, window=window, name=name)
            terms = begun(story.records)
            _draw_evaluations(axes, story.evaluations, looks, panel=panel, terms=terms, name=name)
        _explain(axes)
    for story, colour in zip(stories, cycle(_COLOURS), strict=False):
        iterations = [record.iteration for record in story.records]
        round_s = np.array([record.round_s for record in story.records])
        rounds.plot(iterations, _moving_mean(round_s, rounds_window), color=colour)
    rounds.set_ylim(bottom=0)
    return figure


def _figure(title: str, panels: Sequence[Panel]) -> tuple[Figure, Sequence[Axes], Axes]:
    """A figure with axes for the panels, and axes for round times."""
    figure = Figure(figsize=(9, 4 + 2 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    heights = (3, *[2.4] * (len(panels) - 1), 2)
    *all_axes, rounds = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    figure.suptitle(title, fontsize=11)
    for axes, panel in zip(all_axes, panels, strict=True):
        axes.set_ylabel(panel.label)
        axes.set_yscale(panel.scale)
        if panel.bounds is not None:
            axes.set_ylim(panel.bounds)
    rounds.set_ylabel("round time (s)")
    rounds.set_xlabel("iteration")
    rounds.xaxis.get_major_locator().set_params(integer=True)
    for axes in (*all_axes, rounds):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
    return figure, all_axes, rounds


def _draw_curves(axes: Axes, curves: Curves, looks: Looks, *, window: int, name: str = "") -> None:
    """Draw each side's moving mean over its raw values; ``name`` labels the run."""
    for (side, values), (colour, style) in zip(curves.items(), cycle(looks), strict=False):
        iterations = np.array(sorted(values))
        raw = np.array([values[iteration] for iteration in sorted(values)])
        axes.plot(iterations, raw, color=colour, alpha=0.25 if not name else 0.1, linewidth=0.8)
        called = f"{name} {side if len(curves) > 1 else ''}".strip() if name else side
        label = drawn(f"{called}, mean of {window}" if window > 1 else called)
        smooth = _moving_mean(raw, window)
        axes.plot(iterations, smooth, color=colour, linestyle=style, linewidth=1.8, label=label)


def _draw_evaluations(
    axes: Axes,
    evaluations: Sequence[EvaluationRecord],
    looks: Looks,
    *,
    panel: Panel,
    terms: Mapping[int, int],
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
        played = [panel.curves(intervals(record)) for record in chosen]
        for side, (colour, _) in zip(played[0], looks, strict=False):
            called = side if len(played[0]) > 1 else ""
            mean, low, high = np.array([curves[side] for curves in played]).T
            axes.errorbar(
                [record.iteration for record in chosen],
                mean,
                yerr=np.maximum((mean - low, high - mean), 0.0),
                fmt="o",
                markersize=4,
                markerfacecolor=fill,
                color=colour,
                capsize=2,
                label=drawn(" ".join(filter(None, (name, called, what)))),
            )


def _explain(axes: Axes) -> None:
    if axes.lines:
        axes.legend(loc="best", frameon=False, fontsize=9)
    else:
        axes.text(0.5, 0.5, "no episode has ended yet", ha="center", transform=axes.transAxes)


def _window(lengths: Iterable[int]) -> int:
    """Window of the moving mean, common to curves of the given lengths."""
    return max(1, max(lengths, default=0) // _WINDOWS_PER_RUN)


def _moving_mean(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Centred mean over ``window`` entries, fewer at the ends; same length as ``values``."""
    ones = np.ones(min(window, len(values)))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


def _draw_rounds(axes: Axes, records: Sequence[IterationRecord]) -> None:
    late = np.minimum([len(record.late) for record in records], len(_LATE_COLOURS) - 1)
    iterations = np.array([record.iteration for record in records])
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
