"""Forecasts of a code's round times: the simulator's model, applied to all scenarios at once."""

import math

import numpy as np

from fullrank.planning.arrival import arrivals_of
from fullrank.planning.candidates import Candidate
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.delay_model import Scenarios
from fullrank.planning.link_model import arrival_times
from fullrank.planning.plan import Forecast


def forecast(
    candidate: Candidate,
    moved: Traffic,
    likely: Scenarios,
    links: Links,
    *,
    max_variance: float = math.inf,
) -> Forecast:
    """Simulate the scenarios with a code whose n-th share is held by the n-th learner.

    Args:
        candidate: A code of at most as many learners as the scenarios have.
        moved: Bytes of its shares.
        likely: The scenarios.
        links: Between the services.
        max_variance: Limit of ``Arrivals``.
    """
    code = candidate.code
    working = np.flatnonzero(code.load)
    busy_s = (code.load * likely.unit_s[:, : code.learners] + likely.delay_s[:, : code.learners])[
        :, working
    ]
    arrival_s = arrival_times(busy_s, moved, links)
    order = np.argsort(arrival_s, axis=1, kind="stable")
    needed = arrivals_of(code, max_variance).needed(working[order])
    every = np.arange(len(order))
    round_s = arrival_s[every, order[every, needed - 1]]
    mean_s = float(likely.weight @ round_s)
    error_s = float(np.sqrt(likely.weight @ (round_s - mean_s) ** 2 / likely.evidence))
    return Forecast(
        label=candidate.label, round_s=round_s, mean_s=mean_s, cautious_s=mean_s + error_s
    )
