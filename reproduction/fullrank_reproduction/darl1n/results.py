"""Access to the results of the cells."""

import math
from collections.abc import Mapping

from fullrank.common.types import JSON
from fullrank_reproduction.darl1n.published import RATES, RECEIVED, Scheme
from fullrank_reproduction.darl1n.straggler_models import StragglerModel
from fullrank_reproduction.darl1n.times import point
from fullrank_reproduction.darl1n.vandermonde import VANDERMONDE

Results = Mapping[str, JSON]
"""Results by cell."""


def overhead(results: Results, scheme: Scheme) -> float:
    """Mean overhead o_c."""
    return float(results[f"table-v-{scheme.name}"]["overhead"])


def success(results: Results, scheme: Scheme, model: StragglerModel, rate: float) -> JSON:
    """``value`` and ``standard_error``."""
    entry: JSON = results[f"table-v-{scheme.name}"]["success"][model][RATES.index(rate)]
    return entry


def variance(results: Results, scheme: Scheme, received: int) -> tuple[float, float]:
    """Average V and its standard error; NaN if too few sets decode."""
    source = "exact" if scheme is VANDERMONDE else "table-v"
    entry = results[f"{source}-{scheme.name}"]["variance"][RECEIVED.index(received)]
    if entry["mean"] is None:
        return math.nan, math.nan
    return entry["mean"], entry["standard_error"]


def at(results: Results, name: str, size: int) -> JSON:
    """Noise results of a code for a number of received rows."""
    entry: JSON = results[f"noise-{name}"][str(size)]
    return entry


def seconds(
    results: Results, scheme: Scheme, model: StragglerModel, delay_s: float, rate: float
) -> float:
    """Seconds of an iteration."""
    entry = results[f"times-{scheme.name}"][point(model, delay_s, rate)]
    return float(entry["seconds"])
