"""Figures: noise against received rows, and Fig. 7 of [DARL1N]."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from fullrank_reproduction import pictures
from fullrank_reproduction.darl1n import noise, times
from fullrank_reproduction.darl1n.published import AGENTS, DELAYS_S, TOTALLED, Scheme
from fullrank_reproduction.darl1n.results import Results, at, seconds
from fullrank_reproduction.darl1n.straggler_models import StragglerModel

_STYLES = {StragglerModel.BERNOULLI: "-", StragglerModel.FIXED: ":"}


def draw_noise(results: Results, path: Path) -> None:
    """Mean variance (median; dotted: 90th percentile) and the share of sets that decode."""
    figure = pictures.blank(width=11, height=4.8)
    left, right = figure.subplots(1, 2)
    for name in noise.CODES:
        _draw_noise_of(left, results, name)
        decodable = [at(results, name, size)["decodable"] for size in noise.SIZES]
        right.plot(noise.SIZES, decodable, color=_colour(name), linewidth=1.8)
    bound = AGENTS / np.array(noise.SIZES)
    left.plot(noise.SIZES, bound, "k--", linewidth=1.4, label="M / |J|, the least possible")
    left.set_yscale("log")
    left.set_ylim(0.4, 20_000.0)
    left.set_ylabel(
        "mean variance / that of one learner's gradient\n(median; dotted: 90 % of sets)"
    )
    right.set_ylabel("share of the sets J that decode")
    for axes in (left, right):
        axes.set_xlabel("rows received, |J|")
        axes.set_xticks(noise.SIZES[::2])
        pictures.tidy(axes)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=pictures.DPI)


def _draw_noise_of(axes: Axes, results: Results, name: str) -> None:
    sizes = [size for size in noise.SIZES if at(results, name, size)["noise"] is not None]
    _, middle, high = np.array([at(results, name, size)["noise"] for size in sizes]).T
    axes.plot(sizes, high, ":", color=_colour(name), linewidth=1.2)
    axes.plot(sizes, middle, color=_colour(name), linewidth=1.8, label=name)


def draw_times(results: Results, path: Path) -> None:
    """Fig. 7: one panel for each delay; dotted with a fixed number of stragglers."""
    figure = pictures.blank(width=11, height=4.8)
    for axes, delay_s in zip(figure.subplots(1, 2), DELAYS_S, strict=True):
        for scheme in times.SCHEMES:
            for model in StragglerModel:
                _draw_times_of(axes, results, scheme, model, delay_s)
        axes.set_title(f"Δ = {delay_s:g} s", fontsize=11)
        axes.set_xlabel("rate of stragglers η; dotted: exactly round(ηN) of them")
        axes.set_ylabel(f"s for {TOTALLED} iterations")
        axes.set_ylim(bottom=0.0)
        pictures.tidy(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(path, dpi=pictures.DPI)


def _draw_times_of(
    axes: Axes, results: Results, scheme: Scheme, model: StragglerModel, delay_s: float
) -> None:
    taken = [TOTALLED * seconds(results, scheme, model, delay_s, rate) for rate in times.GRID]
    label = scheme.name if model is StragglerModel.BERNOULLI else None
    style, colour = _STYLES[model], _colour(scheme.name)
    axes.plot(times.GRID, taken, style, color=colour, linewidth=1.8, marker=".", label=label)


def _colour(name: str) -> str:
    return pictures.COLOURS[name.partition("-")[0]]
