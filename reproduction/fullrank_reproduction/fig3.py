"""Fig. 3 of [Wang21]: this reproduction's learning curves beside those that the authors saved."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fullrank.common.seeding import stream
from fullrank.common.types import JSON, Array, Interval
from fullrank_reproduction import claim_results, pictures
from fullrank_reproduction.claim_results import ClaimResult, Whose, judge, measured
from fullrank_reproduction.learning import CENTRALISED, EXACT
from fullrank_reproduction.wang21 import EVERY, PublishedPanel

CLOSE = 0.03
"""Relative distance within which a curve counts as the authors'."""
FROM = 500
"""Iterations after which it does; the initial transient depends on the seed."""
RESAMPLES = 2_000
POINTS = 20
"""Points of a drawn curve, each the mean of an interval, if there are fewer published ones."""


def points(runs: Mapping[str, JSON], panel: PublishedPanel, *, seeds: int) -> Array:
    """Means over 250 iterations, as the authors saved them, shape (seeds, whole intervals)."""
    curves = [_returns(runs, panel, CENTRALISED, seed) for seed in range(seeds)]
    whole = len(curves[0]) // EVERY
    return np.stack(
        [np.nanmean(curve[: whole * EVERY].reshape(whole, EVERY), axis=1) for curve in curves]
    )


def distances(ours: Array, published: Sequence[float]) -> Array:
    """Relative distance of the mean over seeds from a published curve, from ``FROM`` on."""
    first, last = FROM // EVERY, min(ours.shape[1], len(published))
    said = np.array(published[first:last])
    relative: Array = np.abs(ours.mean(axis=0)[first:last] / said - 1.0)
    return relative


def judge_published(
    runs: Mapping[str, JSON], panel: PublishedPanel, *, seeds: int
) -> list[ClaimResult]:
    """Judge if the curve is one of the authors'; no result if runs are shorter than ``FROM``."""
    ours = points(runs, panel, seeds=seeds)
    if ours.shape[1] * EVERY <= FROM:
        return []
    said, near = [], False
    for kind, published in panel.published.items():
        apart = distances(ours, published)
        near = near or bool(apart.max() <= CLOSE)
        said.append(f"{kind}: median {np.median(apart):.1%}, largest {apart.max():.1%}")
    text = "; ".join(said)
    return [
        judge(
            f"Within {CLOSE:.0%} of an authors' curve from {FROM} iterations on: {panel.name}.",
            [] if near else [text],
            grounds=text,
            strength=measured(seeds),
            whose=Whose.OURS,
        )
    ]


def judge_learning(runs: Mapping[str, JSON], panel: PublishedPanel, *, seeds: int) -> ClaimResult:
    """Claim (v): coded and centralised runs learn alike; here they are compared bit by bit."""
    claim = f"(v) Coded training learns what centralised training learns: {panel.name}."
    compared, iterations, differing, elsewhere = 0, 0, [], []
    for seed in range(seeds):
        reference = runs[f"{panel.name}-{CENTRALISED}-seed{seed}"]
        for code in EXACT:
            run = runs.get(f"{panel.name}-{code}-seed{seed}")
            if run is None:
                continue
            if run["digests"] == reference["digests"][: len(run["digests"])]:
                compared, iterations = compared + 1, iterations + len(run["digests"])
            elif run.get("computed_on") == reference.get("computed_on"):
                differing.append(f"{code} (seed {seed})")
            else:
                elsewhere.append(f"{code} (seed {seed})")
    if elsewhere and not differing:
        reason = f"computed on another processor than the centralised run: {elsewhere}"
        return claim_results.undecided(claim, reason, claim_results.EXACT)
    grounds = f"{compared} coded runs with stragglers: all {iterations} update digests are equal"
    against = [f"bits differ: {differing}"] if differing else []
    return judge(claim, against, grounds=grounds, strength=claim_results.EXACT)


def table(runs: Mapping[str, JSON], panels: Sequence[PublishedPanel], *, seeds: int) -> str:
    """Published and own points of every panel, in Markdown; empty if runs are too short."""
    lines = []
    for panel in panels:
        ours = points(runs, panel, seeds=seeds)
        if not ours.shape[1]:
            continue
        heads = ["iterations", *(f"authors, {kind}" for kind in panel.published)]
        heads += [f"ours, seed {seed}" for seed in range(seeds)]
        lines += [f"\n**{panel.name}**\n", _line(heads), "|" + "---|" * len(heads)]
        for index in range(ours.shape[1]):
            row = [f"{index * EVERY + 1} to {(index + 1) * EVERY}"]
            row += [
                f"{curve[index]:.1f}" if index < len(curve) else "-"
                for curve in panel.published.values()
            ]
            lines.append(_line([*row, *(f"{value:.1f}" for value in ours[:, index])]))
    return "\n".join(lines)


def played(runs: Mapping[str, JSON], panels: Sequence[PublishedPanel], *, seeds: int) -> str:
    """Returns of the trained policies by the way they act, in Markdown."""
    ways = ("greedy", "soft", "exploring")
    lines = [_line(["task", "seed", *ways]), "|---|---|---|---|---|"]
    for panel in panels:
        for seed in range(seeds):
            found = runs[f"{panel.name}-{CENTRALISED}-seed{seed}"]["played"]
            cells = [str(Interval(**found[way])) for way in ways]
            lines.append(_line([panel.name, str(seed), *cells]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw(
    runs: Mapping[str, JSON], panels: Sequence[PublishedPanel], *, seeds: int, path: Path
) -> None:
    """Returns by iteration, mean over seeds with a 95 % bootstrap band, and published points."""
    lines = -(-len(panels) // 2)
    figure = pictures.blank(width=11, height=3.4 * lines + 0.4)
    cells = figure.subplots(lines, 2, squeeze=False)
    for axes, panel in zip(cells.flat, panels, strict=False):
        _draw_panel(axes, runs, panel, seeds)
    for axes in cells.flat[len(panels) :]:
        axes.set_axis_off()
    drawn = {str(line.get_label()): line for axes in cells.flat for line in axes.lines}
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=len(drawn))
    figure.savefig(path, dpi=pictures.DPI)


def _draw_panel(axes: Axes, runs: Mapping[str, JSON], panel: PublishedPanel, seeds: int) -> None:
    for name, colour, style in ((CENTRALISED, "#333333", "-"), ("cyclic", "#d55e00", "--")):
        curves = [_returns(runs, panel, name, seed) for seed in range(seeds)]
        _draw_band(axes, np.stack(curves), label=name, colour=colour, style=style)
    length = len(_returns(runs, panel, CENTRALISED, 0))
    if length > FROM:
        for (kind, values), marker in zip(panel.published.items(), "ox", strict=False):
            at = EVERY * (np.arange(len(values)) + 0.5)
            axes.plot(at, values, marker, color="#0072b2", markersize=4, label=f"authors, {kind}")
    axes.set_title(f"{panel.name.replace('_', ' ')}, K = {panel.adversaries}", fontsize=11)
    axes.set_xlabel("iteration")
    axes.set_ylabel("episode return, all agents")
    pictures.tidy(axes)


def _returns(runs: Mapping[str, JSON], panel: PublishedPanel, code: str, seed: int) -> Array:
    return np.array(runs[f"{panel.name}-{code}-seed{seed}"]["returns"], dtype=np.float64)


def _draw_band(
    axes: Axes, values: NDArray[np.float64], *, label: str, colour: str, style: str
) -> None:
    length = values.shape[1]
    parts = np.array_split(np.arange(length), min(max(POINTS, length // EVERY), length))
    means = np.stack([np.nanmean(values[:, part], axis=1) for part in parts], axis=1)
    at = [float(part.mean()) for part in parts]
    low, high = _band(means)
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(at, means.mean(axis=0), style, color=colour, linewidth=1.8, label=label)


def _band(means: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bootstrap band over the seeds of means, shape (seeds, points)."""
    picked = stream(0, "band").integers(len(means), size=(RESAMPLES, len(means)))
    low, high = np.percentile(means[picked].mean(axis=1), [2.5, 97.5], axis=0)
    return low, high
