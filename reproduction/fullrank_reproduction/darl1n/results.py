"""What was found, read out of the cells."""

import math
from collections.abc import Mapping

from fullrank.common.types import JSON
from fullrank_reproduction.darl1n.published import RATES, RECEIVED, Scheme
from fullrank_reproduction.darl1n.straggling import Straggling
from fullrank_reproduction.darl1n.times import point
from fullrank_reproduction.darl1n.vandermonde import VANDERMONDE

Found = Mapping[str, JSON]
"""Results by cell."""


def overhead(found: Found, scheme: Scheme) -> float:
    """Mean o_c."""
    return float(found[f"table-v-{scheme.name}"]["overhead"])


def success(found: Found, scheme: Scheme, straggling: Straggling, rate: float) -> JSON:
    """``value`` and ``standard_error``."""
    entry: JSON = found[f"table-v-{scheme.name}"]["success"][straggling][RATES.index(rate)]
    return entry


def variance(found: Found, scheme: Scheme, received: int) -> tuple[float, float]:
    """Average V and its standard error; NaN where too few sets decode."""
    source = "exact" if scheme is VANDERMONDE else "table-v"
    entry = found[f"{source}-{scheme.name}"]["variance"][RECEIVED.index(received)]
    if entry["mean"] is None:
        return math.nan, math.nan
    return entry["mean"], entry["standard_error"]


def at(found: Found, name: str, size: int) -> JSON:
    """What was found of a code with so many rows."""
    entry: JSON = found[f"noise-{name}"][str(size)]
    return entry


def seconds(
    found: Found, scheme: Scheme, straggling: Straggling, delay_s: float, rate: float
) -> float:
    """Of an iteration."""
    entry = found[f"times-{scheme.name}"][point(straggling, delay_s, rate)]
    return float(entry["seconds"])
