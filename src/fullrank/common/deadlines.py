"""How long something may take: by a quantile of what it took before, within bounds."""

from collections.abc import Collection

QUANTILE, MEASURED = 0.99, 20
"""Which quantile counts, and how many measurements it needs; one of them never sets it alone."""


def limit_s(
    measured_s: Collection[float], *, factor: float, least_s: float, unmeasured_s: float
) -> float:
    """The limit of the next time, seconds.

    Args:
        measured_s: What the last times took.
        factor: How many times their 99th percentile the next one may take.
        least_s: It may take so long in any case: less would only measure a busy machine.
        unmeasured_s: It may take so long before it was measured often enough.
    """
    if len(measured_s) < MEASURED:
        return unmeasured_s
    usual_s = sorted(measured_s)[int(QUANTILE * (len(measured_s) - 1))]
    return max(least_s, factor * usual_s)
