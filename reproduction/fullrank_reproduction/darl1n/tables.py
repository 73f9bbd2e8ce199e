"""Tables and figures of the page: the paper's numbers next to this reproduction's."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from fullrank.common.types import JSON
from fullrank_reproduction import pictures
from fullrank_reproduction.darl1n import noise, times
from fullrank_reproduction.darl1n.published import (
    AGENTS,
    CONVERGENCE_S,
    CYCLIC,
    DELAYS_S,
    RATES,
    RECEIVED,
    SCHEMES,
    TABLE_V,
    TIMED,
    TOTALLED,
    VARIANCE,
    Scheme,
)
from fullrank_reproduction.darl1n.results import Results, at, overhead, seconds, success, variance
from fullrank_reproduction.darl1n.straggler_models import StragglerModel, success_probability
from fullrank_reproduction.darl1n.times import PaperMachines, low_variance_point, point
from fullrank_reproduction.darl1n.vandermonde import VANDERMONDE

_LATE = RATES[1:]
_SHOWN = (12, 13, 14, 16, 18, 20, 24)
"""|J| in the table of noise."""


def of_success(results: Results) -> str:
    """Table V, the first two parts."""
    rates = ", ".join(map(str, _LATE))
    lines = [
        "| scheme | overhead: published | ours | success: published | fixed | fixed, closed form "
        "| independent | independent, closed form |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for scheme in SCHEMES:
        said = TABLE_V[scheme.name]
        cells = [
            f"{said.overhead:g}",
            f"{overhead(results, scheme):.2f}",
            " / ".join(f"{value:g}" for value in said.success[1:]),
        ]
        for model in (StragglerModel.FIXED, StragglerModel.BERNOULLI):
            cells += [_rates(results, scheme, model), _closed(scheme, model)]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return f"At eta = {rates}:\n\n" + "\n".join(lines)


def _rates(results: Results, scheme: Scheme, model: StragglerModel) -> str:
    entries = [success(results, scheme, model, rate) for rate in _LATE]
    return " / ".join(f"{entry['value']:.3f} ± {entry['standard_error']:.3f}" for entry in entries)


def _closed(scheme: Scheme, model: StragglerModel) -> str:
    values = [success_probability(scheme.name, model, rate) for rate in _LATE]
    return " / ".join("-" if value is None else f"{value:.3f}" for value in values)


def of_variance(results: Results) -> str:
    """Table V, average V."""
    heads = [rf"\|J\| = {size}: published | ours" for size in RECEIVED]
    lines = ["| scheme | " + " | ".join(heads) + " |", "|---|" + "---|---|" * len(RECEIVED)]
    for scheme in (*SCHEMES, VANDERMONDE):
        published = TABLE_V.get(scheme.name)
        cells = []
        for index, size in enumerate(RECEIVED):
            mean, error = variance(results, scheme, size)
            cells += [
                "-" if published is None else f"{published.variance[index]:g}",
                "-" if math.isnan(mean) else f"{mean:.2f} ± {error:.2f}",
            ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def of_noise(results: Results) -> str:
    """Median mean variance, the middle 80 %, condition, and the share of sets that decode."""
    lines = [
        r"| \|J\| | M / \|J\| | " + " | ".join(noise.CODES) + " |",
        "|---|---|" + "---|" * len(noise.CODES),
    ]
    for size in _SHOWN:
        cells = [_noise(results, name, size) for name in noise.CODES]
        lines.append(f"| {size} | {AGENTS / size:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _noise(results: Results, name: str, size: int) -> str:
    entry = at(results, name, size)
    if entry["noise"] is None:
        return f"- ({entry['decodable']:.0%})"
    low, middle, high = entry["noise"]
    return (
        f"**{middle:.3g}** ({low:.3g} to {high:.3g}), kappa {entry['condition']:.3g}, "
        f"{entry['decodable']:.0%}"
    )


def of_times(results: Results) -> str:
    """Fig. 7 in numbers."""
    heads = [f"{model}, Delta = {delay_s:g}" for model in StragglerModel for delay_s in DELAYS_S]
    lines = ["| scheme | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for scheme in (*TIMED, CYCLIC):
        cells = [
            " / ".join(
                f"{TOTALLED * seconds(results, scheme, model, delay_s, rate):.1f}" for rate in RATES
            )
            for model in StragglerModel
            for delay_s in DELAYS_S
        ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def of_waiting(results: Results) -> str:
    """Seconds of an iteration and mean rows, for commits at rank M and at low variance."""
    lines = [
        "| scheme | bernoulli: rank M | bernoulli: low variance "
        "| fixed: rank M | fixed: low variance |",
        "|---|---|---|---|---|",
    ]
    for scheme in (*TIMED, CYCLIC):
        cells = [
            _waited(results[f"times-{scheme.name}"], key)
            for model in StragglerModel
            for key in (partial(point, model, DELAYS_S[0]), partial(low_variance_point, model))
        ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _waited(played: JSON, key: Callable[[float], str]) -> str:
    entries = [played[key(rate)] for rate in RATES]
    taken, rows = ([entry[name] for entry in entries] for name in ("seconds", "rows"))
    return f"{_three(taken, '{:.2f}')} ({_three(rows, '{:.1f}')})"


def of_convergence(results: Results, machines: PaperMachines) -> str:
    """Table VI: times and V."""
    lines = [
        "| scheme | published | bernoulli | fixed | V: published | V: bernoulli | V: fixed |",
        "|---|---|---|---|---|---|---|",
    ]
    for scheme in TIMED:
        cells = [_three(CONVERGENCE_S[scheme.name], "{:.0f}")]
        cells += [
            _three(
                [
                    machines.iterations * seconds(results, scheme, model, DELAYS_S[0], rate)
                    for rate in RATES
                ],
                "{:.0f}",
            )
            for model in StragglerModel
        ]
        cells.append(_three(VARIANCE[scheme.name], "{:.2f}"))
        for model in StragglerModel:
            played = results[f"times-{scheme.name}"]
            values = [played[point(model, DELAYS_S[0], rate)]["variance"] for rate in RATES]
            cells.append(_three(values, "{:.2f}"))
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _three(values: Sequence[float], form: str) -> str:
    return " / ".join(form.format(value) for value in values)


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
