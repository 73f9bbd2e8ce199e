"""The tables of the page: ours beside the paper's."""

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
from fullrank_reproduction.darl1n.readings import Found, at, overhead, seconds, success, variance
from fullrank_reproduction.darl1n.straggling import Straggling, undisturbed
from fullrank_reproduction.darl1n.times import Machines, point, quiet_point
from fullrank_reproduction.darl1n.vandermonde import VANDERMONDE

_LATE = RATES[1:]
_SHOWN = (12, 13, 14, 16, 18, 20, 24)
"""|J| in the table of noise."""


def of_success(found: Found) -> str:
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
        for straggling in (Straggling.FIXED, Straggling.BERNOULLI):
            cells += [_rates(found, scheme, straggling), _closed(scheme, straggling)]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return f"At eta = {rates}:\n\n" + "\n".join(lines)


def _rates(found: Found, scheme: Scheme, straggling: Straggling) -> str:
    entries = [success(found, scheme, straggling, rate) for rate in _LATE]
    return " / ".join(f"{each['value']:.3f} ± {each['standard_error']:.3f}" for each in entries)


def _closed(scheme: Scheme, straggling: Straggling) -> str:
    values = [undisturbed(scheme.name, straggling, rate) for rate in _LATE]
    return " / ".join("-" if value is None else f"{value:.3f}" for value in values)


def of_variance(found: Found) -> str:
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


def of_noise(found: Found) -> str:
    """Median mean variance, the middle 80 %, condition, and the share of sets that decode."""
    lines = [
        r"| \|J\| | M / \|J\| | " + " | ".join(noise.CODES) + " |",
        "|---|---|" + "---|" * len(noise.CODES),
    ]
    for size in _SHOWN:
        cells = [_noise(found, name, size) for name in noise.CODES]
        lines.append(f"| {size} | {AGENTS / size:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _noise(found: Found, name: str, size: int) -> str:
    entry = at(found, name, size)
    if entry["noise"] is None:
        return f"- ({entry['decodable']:.0%})"
    low, middle, high = entry["noise"]
    return (
        f"**{middle:.3g}** ({low:.3g} to {high:.3g}), kappa {entry['condition']:.3g}, "
        f"{entry['decodable']:.0%}"
    )


def of_times(found: Found) -> str:
    """Fig. 7 in numbers."""
    heads = [
        f"{straggling}, Delta = {delay_s:g}" for straggling in Straggling for delay_s in DELAYS_S
    ]
    lines = ["| scheme | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for scheme in (*TIMED, OURS):
        cells = [
            " / ".join(
                f"{TOTALLED * seconds(found, scheme, straggling, delay_s, rate):.1f}"
                for rate in RATES
            )
            for straggling in Straggling
            for delay_s in DELAYS_S
        ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def of_waiting(found: Found) -> str:
    """Seconds of an iteration and mean rows of it, committed at rank M and when it is quiet."""
    lines = [
        "| scheme | bernoulli: rank M | quiet | fixed: rank M | quiet |",
        "|---|---|---|---|---|",
    ]
    for scheme in (*TIMED, OURS):
        cells = [
            _waited(found[f"times-{scheme.name}"], key)
            for straggling in Straggling
            for key in (partial(point, straggling, DELAYS_S[0]), partial(quiet_point, straggling))
        ]
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _waited(played: JSON, key: Callable[[float], str]) -> str:
    entries = [played[key(rate)] for rate in RATES]
    taken, rows = ([entry[name] for entry in entries] for name in ("seconds", "rows"))
    return f"{_three(taken, '{:.2f}')} ({_three(rows, '{:.1f}')})"


def of_convergence(found: Found, machines: Machines) -> str:
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
                    machines.iterations * seconds(found, scheme, straggling, DELAYS_S[0], rate)
                    for rate in RATES
                ],
                "{:.0f}",
            )
            for straggling in Straggling
        ]
        cells.append(_three(VARIANCE[scheme.name], "{:.2f}"))
        for straggling in Straggling:
            played = found[f"times-{scheme.name}"]
            values = [played[point(straggling, DELAYS_S[0], rate)]["variance"] for rate in RATES]
            cells.append(_three(values, "{:.2f}"))
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _three(values: Sequence[float], form: str) -> str:
    return " / ".join(form.format(value) for value in values)
