"""Tables and pictures about codes: the paper's numbers next to this reproduction's."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from fullrank.common.types import JSON
from fullrank_darl1n import coding, times
from fullrank_darl1n.coding import at, overhead, success, variance
from fullrank_darl1n.published import (
    AGENTS,
    DELAYS_S,
    LATE,
    RATES,
    RECEIVED,
    SCHEMES,
    TABLE_V,
    TABLE_VI,
    TIMED,
    TOTALLED,
    VANDERMONDE,
    Darl1nScale,
    Scheme,
    StragglerModel,
    success_probability,
)
from fullrank_darl1n.table_claims import returns, shares
from fullrank_darl1n.times import PaperMachines, low_variance_point, point, seconds
from fullrank_papers import pictures
from fullrank_papers.cells import Results
from fullrank_papers.paper import table

SHOWN = (12, 13, 14, 16, 18, 20, 24)
"""|J| in the table of noise."""
CASES = [(model, delay_s) for model in StragglerModel for delay_s in DELAYS_S]
STYLES = {StragglerModel.BERNOULLI: "-", StragglerModel.FIXED: ":"}


def _listed(values: Iterable[float], form: str) -> str:
    return " / ".join(format(value, form) for value in values)


def success_table(results: Results) -> str:
    """Table V, the first two parts."""
    rows = []
    for scheme in SCHEMES:
        said = TABLE_V[scheme.name]
        row = [scheme.name, f"{said.overhead:g}", f"{overhead(results, scheme):.2f}"]
        row.append(_listed(said.success[1:], "g"))
        for model in (StragglerModel.FIXED, StragglerModel.BERNOULLI):
            found = [success(results, scheme, model, rate) for rate in LATE]
            closed = [success_probability(scheme.name, model, rate) for rate in LATE]
            row.append(" / ".join(f"{e['value']:.3f} ± {e['standard_error']:.3f}" for e in found))
            row.append(" / ".join("-" if value is None else f"{value:.3f}" for value in closed))
        rows.append(row)
    heads = ("scheme", "overhead: published", "ours", "success: published", "fixed")
    rest = ("fixed, closed form", "independent", "independent, closed form")
    return table([*heads, *rest], rows)


def variance_table(results: Results) -> str:
    """Table V, average V."""
    rows = []
    for scheme in (*SCHEMES, VANDERMONDE):
        published, row = TABLE_V.get(scheme.name), [scheme.name]
        for index, size in enumerate(RECEIVED):
            mean, error = variance(results, scheme, size)
            row.append("-" if published is None else f"{published.variance[index]:g}")
            row.append("-" if math.isnan(mean) else f"{mean:.2f} ± {error:.2f}")
        rows.append(row)
    heads = [head for size in RECEIVED for head in (rf"\|J\| = {size}: published", "ours")]
    return table(["scheme", *heads], rows)


def noise_table(results: Results) -> str:
    """Median mean variance, the middle 80 %, condition, and the share of sets that decode."""
    rows = (
        [size, f"{AGENTS / size:.2f}", *(_noise(at(results, name, size)) for name in coding.CODES)]
        for size in SHOWN
    )
    return table([r"\|J\|", r"M / \|J\|", *coding.CODES], rows)


def _noise(entry: JSON) -> str:
    if entry["noise"] is None:
        return f"- ({entry['decodable']:.0%})"
    low, middle, high = entry["noise"]
    return (
        f"**{middle:.3g}** ({low:.3g} to {high:.3g}), kappa {entry['condition']:.3g}, "
        f"{entry['decodable']:.0%}"
    )


def times_table(results: Results) -> str:
    """Fig. 7 in numbers."""
    rows = []
    for scheme in times.SCHEMES:
        taken = (
            [TOTALLED * seconds(results, scheme, *case, rate) for rate in RATES] for case in CASES
        )
        rows.append([scheme.name, *(_listed(each, ".1f") for each in taken)])
    return table(["scheme", *(f"{model}, Delta = {delay_s:g}" for model, delay_s in CASES)], rows)


def waiting_table(results: Results) -> str:
    """Seconds of an iteration and mean rows, for commits at rank M and at low variance."""
    keys: dict[str, Callable[[float], str]] = {}
    for model in StragglerModel:
        keys[f"{model}: rank M"] = partial(point, model, DELAYS_S[0])
        keys[f"{model}: low variance"] = partial(low_variance_point, model)
    rows = []
    for scheme in times.SCHEMES:
        row = [scheme.name]
        for key in keys.values():
            found = [results[f"times-{scheme.name}"][key(rate)] for rate in RATES]
            taken, received = ([each[name] for each in found] for name in ("seconds", "rows"))
            row.append(f"{_listed(taken, '.2f')} ({_listed(received, '.1f')})")
        rows.append(row)
    return table(["scheme", *keys], rows)


def convergence_table(results: Results, machines: PaperMachines) -> str:
    """Table VI: times and V."""
    rows = []
    for scheme in TIMED:
        said, played = TABLE_VI[scheme.name], results[f"times-{scheme.name}"]
        found = [
            [played[point(model, DELAYS_S[0], rate)] for rate in RATES] for model in StragglerModel
        ]
        taken = ([machines.iterations * each["seconds"] for each in one] for one in found)
        noise = ([each["variance"] for each in one] for one in found)
        cells = [_listed(each, ".0f") for each in (said.seconds, *taken)]
        cells += [_listed(each, ".2f") for each in (said.variance, *noise)]
        rows.append([scheme.name, *cells])
    heads = ("published", "bernoulli", "fixed")
    return table(["scheme", *heads, *(f"V: {head}" for head in heads)], rows)


def rewards_table(results: Results, scale: Darl1nScale) -> str:
    """Published rewards, ours, and gains, a row for each scheme; empty without results."""
    found = returns(results, scale)
    rows = []
    for scheme in TIMED if found else ():
        begin, end = found[scheme.name]
        own = (
            _listed(TABLE_VI[scheme.name].reward, "g"),
            f"{begin.mean():.1f}",
            _listed(end.round(1), "g"),
        )
        rows.append([scheme.name, *own, f"{shares(found, scheme).mean():.0%}"])
    heads = ("scheme", "reward: published", "at first", "at the end, by seed")
    return table([*heads, "of the uncoded gain"], rows) if rows else ""


def draw_noise(results: Results, path: Path) -> None:
    """Mean variance (median; dotted: 90th percentile) and the share of sets that decode."""
    with pictures.panels(path, ["", ""], size=(5.5, 4.8), beneath=4) as (left, right):
        for name in coding.CODES:
            colour = _colour(name)
            found = {size: at(results, name, size) for size in coding.SIZES}
            right.plot(coding.SIZES, [e["decodable"] for e in found.values()], color=colour)
            noisy = {size: e["noise"] for size, e in found.items() if e["noise"] is not None}
            _, middle, high = np.array(list(noisy.values())).T
            left.plot(list(noisy), high, ":", color=colour, linewidth=1.2)
            left.plot(list(noisy), middle, color=colour, linewidth=1.8, label=name)
        bound = AGENTS / np.array(coding.SIZES)
        left.plot(coding.SIZES, bound, "k--", linewidth=1.4, label="M / |J|, the least possible")
        left.set(yscale="log", ylim=(0.4, 20_000.0))
        left.set_ylabel(
            "mean variance / that of one learner's gradient\n(median; dotted: 90 % of sets)"
        )
        right.set_ylabel("share of the sets J that decode")
        for axes in (left, right):
            axes.set(xlabel="rows received, |J|", xticks=coding.SIZES[::2])


def draw_times(results: Results, path: Path) -> None:
    """Fig. 7: one panel for each delay; dotted with a fixed number of stragglers."""
    titles = [f"Δ = {delay_s:g} s" for delay_s in DELAYS_S]
    with pictures.panels(path, titles, size=(5.5, 4.8), beneath=7) as every:
        for axes, delay_s in zip(every, DELAYS_S, strict=True):
            for scheme in times.SCHEMES:
                _draw_scheme(axes.plot, results, scheme, delay_s)
            axes.set_xlabel("rate of stragglers η; dotted: exactly round(ηN) of them")
            axes.set_ylabel(f"s for {TOTALLED} iterations")
            axes.set_ylim(bottom=0.0)


def _draw_scheme(
    plot: Callable[..., object], results: Results, scheme: Scheme, delay_s: float
) -> None:
    for model, style in STYLES.items():
        taken = [TOTALLED * seconds(results, scheme, model, delay_s, rate) for rate in times.GRID]
        label = scheme.name if model is StragglerModel.BERNOULLI else None
        plot(times.GRID, taken, style, color=_colour(scheme.name), marker=".", label=label)


def _colour(name: str) -> str:
    return pictures.COLOURS[name.partition("-")[0]]
