"""Deadlines from a quantile of measured times, within bounds."""

from collections.abc import Collection

QUANTILE, MEASURED = 0.99, 20
"""The quantile, and the measurements that it needs so that none of them sets it alone."""

FACTOR = 5.0
"""Multiple of usual times after which a round, a block or a sign of life is overdue."""

LONGEST_S = 1e9
"""Longest duration that is believed of another process, 30 years: sums of such ones are finite."""


def is_duration(seconds: float) -> bool:
    """True for a duration that another process may have measured; False for NaN."""
    return 0.0 <= seconds <= LONGEST_S


def limit_s(
    measured_s: Collection[float], *, factor: float, least_s: float, unmeasured_s: float
) -> float:
    """The limit of the next duration, seconds.

    Args:
        measured_s: The last durations.
        factor: Multiple of their 99th percentile that the next one may take.
        least_s: Lower bound of the limit; shorter ones would only measure a busy machine.
        unmeasured_s: The limit before there are enough measurements.
    """
    if len(measured_s) < MEASURED:
        return unmeasured_s
    usual_s = sorted(measured_s)[int(QUANTILE * (len(measured_s) - 1))]
    return max(least_s, factor * usual_s)
