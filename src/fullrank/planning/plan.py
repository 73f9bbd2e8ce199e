"""Plans: a chosen code, and the forecasts of round times that it was chosen from.

A forecast applies the simulator's model to all scenarios at once.
"""

import math
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import Times
from fullrank.planning.arrival import arrivals_of
from fullrank.planning.candidates import Candidate
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.delay_model import Scenarios
from fullrank.planning.link_model import arrival_times
from fullrank.planning.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Round times of a candidate in K scenarios."""

    label: str
    round_s: Times
    """Round time in each scenario, shape (K,)."""
    mean_s: float
    cautious_s: float
    """One standard error above the mean: rare lateness may be less rare than it was observed."""

    def rank(self, round_s: float) -> float:
        """The share of scenarios quicker than a round, plus half the share of ties."""
        quicker = self.round_s < round_s * (1.0 - TUNING.rank_tie)
        not_longer = self.round_s <= round_s * (1.0 + TUNING.rank_tie)
        return float((quicker.mean() + not_longer.mean()) / 2)

    def __str__(self) -> str:
        return f"{self.label} ({self.mean_s:.4g} s)"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A chosen code, and the reason."""

    candidate: Candidate
    changed: bool
    reason: str
    forecasts: tuple[Forecast, ...] = ()
    """Forecasts of all candidates, the quickest first; empty before ``Tuning.first`` iterations."""


def forecast(
    candidate: Candidate,
    moved: Traffic,
    likely: Scenarios,
    links: Links,
    *,
    max_variance: float = math.inf,
    holders: int = 1,
) -> Forecast:
    """Simulate the scenarios with a code whose n-th share is held by the n-th learner.

    Args:
        candidate: A code of at most as many learners as the scenarios have.
        moved: Bytes of its shares.
        likely: The scenarios.
        links: Between the services.
        max_variance: Limit of ``Arrivals``.
        holders: Of each unit, as in ``Arrivals``.
    """
    code = candidate.code
    working = np.flatnonzero(code.load)
    busy_s = (code.load * likely.unit_s[:, : code.learners] + likely.delay_s[:, : code.learners])[
        :, working
    ]
    arrival_s = arrival_times(busy_s, moved, links)
    order = np.argsort(arrival_s, axis=1, kind="stable")
    needed = arrivals_of(code, max_variance, holders).needed(working[order])
    every = np.arange(len(order))
    round_s = arrival_s[every, order[every, needed - 1]]
    mean_s = float(likely.weight @ round_s)
    error_s = float(np.sqrt(likely.weight @ (round_s - mean_s) ** 2 / likely.evidence))
    return Forecast(
        label=candidate.label, round_s=round_s, mean_s=mean_s, cautious_s=mean_s + error_s
    )
