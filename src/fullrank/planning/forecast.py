"""Round times that a code would have in given scenarios: the simulator's model, all at once."""

import math
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import IntArray
from fullrank.planning.arrival import arrivals_of
from fullrank.planning.candidates import Candidate
from fullrank.planning.machines import Scenarios
from fullrank.planning.traffic import Times, Traffic, Wires

FREE = Wires()
ALIKE = 1e-6
"""Relative difference of times that are the same but for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """What a candidate would do."""

    label: str
    round_s: Times
    """Of each scenario, shape (K,)."""
    mean_s: float
    cautious_s: float
    """One standard error above the mean: what was seen seldom may be less rare than it seems."""

    def rank(self, round_s: float) -> float:
        """The share of scenarios that is quicker than a round, and half of those that are alike."""
        quicker = self.round_s < round_s * (1.0 - ALIKE)
        not_longer = self.round_s <= round_s * (1.0 + ALIKE)
        return float((quicker.mean() + not_longer.mean()) / 2)

    def __str__(self) -> str:
        return f"{self.label} ({self.mean_s:.4g} s)"


def forecast(
    candidate: Candidate,
    moved: Traffic,
    likely: Scenarios,
    wires: Wires,
    *,
    max_variance: float = math.inf,
) -> Forecast:
    """Play the scenarios with a code whose row r is held by the r-th learner.

    Args:
        candidate: C, shape (R, M) with R at most N, the learners of the scenarios.
        moved: Bytes of its rows.
        likely: What every learner takes.
        wires: Between the services.
        max_variance: As of ``Arrivals``.
    """
    code = candidate.code
    working = np.flatnonzero(code.load)
    busy_s = (code.load * likely.unit_s[:, : code.rows] + likely.delay_s[:, : code.rows])[
        :, working
    ]
    arrival_s = travelled(busy_s, moved, wires)
    order = np.argsort(arrival_s, axis=1, kind="stable")
    needed = arrivals_of(code, max_variance).needed(working[order])
    every = np.arange(len(order))
    round_s = arrival_s[every, order[every, needed - 1]]
    mean_s = float(likely.weight @ round_s)
    error_s = float(np.sqrt(likely.weight @ (round_s - mean_s) ** 2 / likely.evidence))
    return Forecast(
        label=candidate.label, round_s=round_s, mean_s=mean_s, cautious_s=mean_s + error_s
    )


def travelled(busy_s: Times, moved: Traffic, wires: Wires) -> Times:
    """Arrivals of learners that compute and wait for ``busy_s``, both of shape (K, R)."""
    if wires == FREE:
        return busy_s
    return shared_link(wires.ready_s(moved) + busy_s, moved.digests + moved.coded, wires.bandwidth)


def shared_link(start_s: Times, sizes: IntArray, bandwidth: float) -> Times:
    """``traffic.finish_times`` of many rounds at once, one event of each at a time.

    Args:
        start_s: When each transfer begins, shape (K, R).
        sizes: Bytes, shape (R,).
        bandwidth: Bytes/s of the link.
    """
    rounds, rows = start_s.shape
    left = np.tile(sizes / bandwidth, (rounds, 1))  # seconds at the whole bandwidth
    finish_s, now = np.full(start_s.shape, np.inf), start_s.min(axis=1)
    every = np.arange(rounds)
    for _ in range(2 * rows):
        waiting = start_s > now[:, None]
        open_ = ~waiting & np.isinf(finish_s)
        count = np.maximum(open_.sum(axis=1), 1)
        shortest = np.where(open_, left, np.inf)
        ending = shortest.argmin(axis=1)
        ends = now + shortest[every, ending] * count
        opens = np.where(waiting, start_s, np.inf).min(axis=1)
        following = np.minimum(ends, opens)
        step = np.where(np.isfinite(following), following - now, 0.0)
        left -= open_ * (step / count)[:, None]
        done = np.isfinite(ends) & (ends <= opens)
        finish_s[every[done], ending[done]] = ends[done]
        now = now + step
    return finish_s


def fitted_wires(overhead_s: Times, busy_s: Times, moved: Traffic) -> Wires:
    """The bandwidth at which the least overhead of a round is the median of those seen.

    Overhead is what a return takes beyond its computing; the least of a round has no delay in it.

    Args:
        overhead_s: Least overhead of each of some rounds.
        busy_s: Typical computing times of these rounds, shape (R,).
        moved: Bytes of their rows.
    """
    seen_s, whole_s = float(np.median(overhead_s)), float(busy_s.max())
    total = float((moved.parameters + moved.sample + moved.digests + moved.coded).sum())
    if total == 0.0 or seen_s < NEGLIGIBLE * whole_s:
        return FREE
    slow, fast = 1e-3 * total / seen_s, 1e3 * total / seen_s
    for _ in range(BISECTIONS):
        middle = float(np.sqrt(slow * fast))
        wires = Wires(bandwidth=middle, replay_bandwidth=middle)
        least_s = float((travelled(busy_s[None], moved, wires)[0] - busy_s).min())
        slow, fast = (middle, fast) if least_s > seen_s else (slow, middle)
    return Wires(bandwidth=slow, replay_bandwidth=slow)


NEGLIGIBLE = 0.01
"""Overhead below this share of the computing time is not looked into."""
BISECTIONS = 18
