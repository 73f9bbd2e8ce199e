"""Tables of the page: the paper's numbers next to this reproduction's."""

import math
from collections.abc import Callable, Sequence
from functools import partial

from fullrank.common.types import JSON
from fullrank_reproduction.darl1n import noise
from fullrank_reproduction.darl1n.published import (
    AGENTS,
    CONVERGENCE_S,
    DELAYS_S,
    OURS,
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
from fullrank_reproduction.darl1n.times import Machines, point, quiet_point
from fullrank_reproduction.darl1n.vandermonde import VANDERMONDE

_LATE = RATES[1:]
_SHOWN = (12, 13, 14, 16, 18, 20, 24)
"""|J| in the table of noise."""


def of_success(found: Results) -> str:
    """Table V, the first two parts."""
    rates = ", ".join(map(str, _LATE))
    lines = [
        "| scheme | overhead: published | ours | success: published | fixed | closed form "
        "| independent | closed form |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for scheme in SCHEMES:
        said = TABLE_V[scheme.name]
        cells = [
            f"{said.overhead:g}",
            f"{overhead(found, scheme):.2f}",
            " / ".join(f"{value:g}" for value in said.success[1:]),
        ]
        for model in (StragglerModel.FIXED, StragglerModel.BERNOULLI):
            cells += [_rates(found, scheme, model), _closed(scheme, model)]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return f"At eta = {rates}:\n\n" + "\n".join(lines)


def _rates(found: Results, scheme: Scheme, model: StragglerModel) -> str:
    entries = [success(found, scheme, model, rate) for rate in _LATE]
    return " / ".join(f"{each['value']:.3f} ± {each['standard_error']:.3f}" for each in entries)


def _closed(scheme: Scheme, model: StragglerModel) -> str:
    values = [success_probability(scheme.name, model, rate) for rate in _LATE]
    return " / ".join("-" if value is None else f"{value:.3f}" for value in values)


def of_variance(found: Results) -> str:
    """Table V, average V."""
    heads = [rf"\|J\| = {size}: published | ours" for size in RECEIVED]
    lines = ["| scheme | " + " | ".join(heads) + " |", "|---|" + "---|---|" * len(RECEIVED)]
    for scheme in (*SCHEMES, VANDERMONDE):
        published = TABLE_V.get(scheme.name)
        cells = []
        for index, size in enumerate(RECEIVED):
            mean, error = variance(found, scheme, size)
            cells += [
                "-" if published is None else f"{published.variance[index]:g}",
                "-" if math.isnan(mean) else f"{mean:.2f} ± {error:.2f}",
            ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def of_noise(found: Results) -> str:
    """Median mean variance, the middle 80 %, condition, and the share of sets that decode."""
    lines = [
        r"| \|J\| | M / \|J\| | " + " | ".join(noise.CODES) + " |",
        "|---|---|" + "---|" * len(noise.CODES),
    ]
    for size in _SHOWN:
        cells = [_noise(found, name, size) for name in noise.CODES]
        lines.append(f"| {size} | {AGENTS / size:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _noise(found: Results, name: str, size: int) -> str:
    entry = at(found, name, size)
    if entry["noise"] is None:
        return f"- ({entry['decodable']:.0%})"
    low, middle, high = entry["noise"]
    return (
        f"**{middle:.3g}** ({low:.3g} to {high:.3g}), kappa {entry['condition']:.3g}, "
        f"{entry['decodable']:.0%}"
    )


def of_times(found: Results) -> str:
    """Fig. 7 in numbers."""
    heads = [f"{model}, Delta = {delay_s:g}" for model in StragglerModel for delay_s in DELAYS_S]
    lines = ["| scheme | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for scheme in (*TIMED, OURS):
        cells = [
            " / ".join(
                f"{TOTALLED * seconds(found, scheme, model, delay_s, rate):.1f}" for rate in RATES
            )
            for model in StragglerModel
            for delay_s in DELAYS_S
        ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def of_waiting(found: Results) -> str:
    """Seconds of an iteration and mean rows, for commits at rank M and at low variance."""
    lines = [
        "| scheme | bernoulli: rank M | quiet | fixed: rank M | quiet |",
        "|---|---|---|---|---|",
    ]
    for scheme in (*TIMED, OURS):
        cells = [
            _waited(found[f"times-{scheme.name}"], key)
            for model in StragglerModel
            for key in (partial(point, model, DELAYS_S[0]), partial(quiet_point, model))
        ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _waited(played: JSON, key: Callable[[float], str]) -> str:
    entries = [played[key(rate)] for rate in RATES]
    taken, rows = ([entry[name] for entry in entries] for name in ("seconds", "rows"))
    return f"{_three(taken, '{:.2f}')} ({_three(rows, '{:.1f}')})"


def of_convergence(found: Results, machines: Machines) -> str:
    """Table VI: times and V."""
    lines = [
        "| scheme | published | bernoulli | fixed | V: published | bernoulli | fixed |",
        "|---|---|---|---|---|---|---|",
    ]
    for scheme in TIMED:
        cells = [_three(CONVERGENCE_S[scheme.name], "{:.0f}")]
        cells += [
            _three(
                [
                    machines.iterations * seconds(found, scheme, model, DELAYS_S[0], rate)
                    for rate in RATES
                ],
                "{:.0f}",
            )
            for model in StragglerModel
        ]
        cells.append(_three(VARIANCE[scheme.name], "{:.2f}"))
        for model in StragglerModel:
            played = found[f"times-{scheme.name}"]
            values = [played[point(model, DELAYS_S[0], rate)]["variance"] for rate in RATES]
            cells.append(_three(values, "{:.2f}"))
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _three(values: Sequence[float], form: str) -> str:
    return " / ".join(form.format(value) for value in values)
