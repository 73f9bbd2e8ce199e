"""``fullrank plot``: a run's returns and round times as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fullrank.cli.following import Evaluated, read_evaluations
from fullrank.cli.runs import find_run, named
from fullrank.config import RunConfig, read_config
from fullrank.environments import variant_of
from fullrank.errors import FullrankError
from fullrank.metrics import METRICS, IterationRecord, read_records

_LATE_COLOURS = ("#9aa5b1", "#e69f00", "#d55e00", "#a3006a")
"""By number of late learners: none, one, two, more."""
_SIDE_COLOURS = ("#0072b2", "#009e73", "#cc79a7", "#56b4e9")
_WINDOWS_PER_RUN = 40
"""The moving mean spans one part in this many of the run."""
_LOGARITHMIC_FROM = 20.0
"""A slowest round of so many medians asks for a logarithmic axis."""


def plot(
    run: Annotated[Path, typer.Argument(help="Run directory, or its name below runs/.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="PNG to write; default: <run>/plot.png.")
    ] = None,
) -> None:
    """Draw return and round time by iteration, with late learners marked."""
    directory = find_run(run)
    records = read_records(directory / METRICS)
    if not records:
        raise FullrankError(f"{directory} has no finished iteration yet; there is nothing to plot")
    picture = output or directory / "plot.png"
    evaluations = read_evaluations(directory)
    figure = draw(records, evaluations, title=_title(read_config(directory)))
    try:
        figure.savefig(picture, dpi=150)
    except (OSError, ValueError) as error:
        raise FullrankError(f"cannot write {picture}: {error}") from error
    print(picture)


def draw(
    records: Sequence[IterationRecord], evaluations: Sequence[Evaluated] = (), *, title: str
) -> Figure:
    """Two panels over a common axis: return, and seconds per round.

    Args:
        records: Iterations, at least one.
        evaluations: Of greedy policies, drawn with their intervals over the returns.
        title: Above both.
    """
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    returns, rounds = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    figure.suptitle(title, fontsize=11)
    _draw_returns(returns, records)
    _draw_evaluations(returns, evaluations)
    _explain(returns)
    _draw_rounds(rounds, records)
    for axes in (returns, rounds):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
    rounds.set_xlabel("iteration")
    return figure


def _draw_returns(axes: Axes, records: Sequence[IterationRecord]) -> None:
    axes.set_ylabel("mean episode return")
    for (side, values), colour in zip(_returns(records).items(), _SIDE_COLOURS, strict=False):
        iterations = np.array(sorted(values))
        raw = np.array([values[iteration] for iteration in sorted(values)])
        window = max(1, len(raw) // _WINDOWS_PER_RUN)
        axes.plot(iterations, raw, color=colour, alpha=0.25, linewidth=0.8)
        label = f"{side}, mean of {window}" if window > 1 else side
        axes.plot(iterations, _moving_mean(raw, window), color=colour, linewidth=1.8, label=label)


def _draw_evaluations(axes: Axes, evaluations: Sequence[Evaluated]) -> None:
    if not evaluations:
        return
    iterations = [evaluated.iteration for evaluated in evaluations]
    several = list(evaluations[0].sides) if len(evaluations[0].sides) > 1 else []
    for side, colour in zip(several or [""], _SIDE_COLOURS, strict=False):
        drawn = [each.sides[side] if side else each.returns for each in evaluations]
        mean, low, high = np.array(drawn).T
        axes.errorbar(
            iterations,
            mean,
            yerr=(mean - low, high - mean),
            fmt="o",
            markersize=4,
            color=colour,
            capsize=2,
            label=f"{side} greedily".strip(),
        )


def _explain(axes: Axes) -> None:
    if axes.lines:
        axes.legend(loc="lower right", frameon=False, fontsize=9)
    else:
        axes.text(0.5, 0.5, "no episode has ended yet", ha="center", transform=axes.transAxes)


def _returns(records: Sequence[IterationRecord]) -> Mapping[str, Mapping[int, float]]:
    """Return by iteration: of the team, or of each side where there are several."""
    sides = list(dict.fromkeys(side for record in records for side in record.side_returns))
    if len(sides) < 2:
        series = {"all agents": {r.iteration: r.return_mean for r in records}}
    else:
        series = {side: {r.iteration: r.side_returns.get(side) for r in records} for side in sides}
    found = {
        name: {iteration: value for iteration, value in values.items() if value is not None}
        for name, values in series.items()
    }
    return {name: values for name, values in found.items() if values}


def _moving_mean(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Centred mean over ``window`` entries, fewer at the ends; same length as ``values``."""
    ones = np.ones(min(window, len(values)))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


def _draw_rounds(axes: Axes, records: Sequence[IterationRecord]) -> None:
    axes.set_ylabel("round time (s)")
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
    variant = variant_of(config.environment.name, config.environment.params)
    return (
        f"{config.algorithm.name} on {config.environment.name} ({variant}), seed {config.seed}\n"
        f"code: {named(config.code)} · N = {config.learners}{units} · "
        f"stragglers: {named(config.stragglers)}"
    )
