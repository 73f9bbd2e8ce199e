"""From observations to scenarios: what every learner would have taken in each past iteration.

A learner's return is modelled as transfer + load x unit time + delay, the delay independent of the
load. What is known of an iteration stays together, since lateness may be joint (exactly k of N);
what was cut off by the commit is drawn from what is known of such cases.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.common.types import BoolArray, IntArray
from fullrank.planning.observation import Window
from fullrank.planning.traffic import Times

STEPS = 12
"""Of the self-consistency iteration, which is close after a few."""
SLOWER = ((1.1, 1e-3), (1.25, 2e-4), (1.6, 2e-5))
"""Paces over the 95th percentile of those completed, and their prior shares: a commit cuts off the
slow ones first, and what is a little beyond those seen is no new kind of lateness."""
UNSEEN = 1e-5
"""Prior share of lateness beyond everything seen; what no known case explains is added to it."""
STOPPED = 1e-6
"""A learner that has been out so often in a row that this is the probability has stopped."""
LONGEST = 100.0
"""Unseen lateness over what is known of it, at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cases:
    """Completed returns, shape (P,): how often each is drawn, and what it was."""

    weight: Times
    pace: Times
    """Computing time over the learner's typical one."""
    delay_s: Times


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenarios:
    """K iterations that may happen again."""

    weight: Times
    """Shape (K,), sums to 1."""
    unit_s: Times
    """Shape (K, N)."""
    delay_s: Times
    """Shape (K, N)."""
    stopped: BoolArray
    """Learners of which nothing more is expected, shape (N,)."""
    evidence: float
    """Iterations that they rest on, had all the same weight."""


def typical_unit_s(window: Window, weight: Times, before: Times) -> Times:
    """Each learner's typical seconds a unit, shape (N,).

    Args:
        window: What was seen.
        weight: Of each iteration, shape (K,).
        before: Known from earlier, nan where nothing is; used for who was never received.
    """
    seen = np.isfinite(window.compute_s)
    pace = np.where(seen, window.compute_s, 1.0) / np.maximum(window.load, 1)
    weights = weight[:, None] * seen
    total = weights.sum(axis=0)
    mean = np.exp(
        (weights * np.log(np.maximum(pace, 1e-9))).sum(axis=0) / np.maximum(total, 1e-300)
    )
    unit_s = np.where(total > 0, mean, before)
    known = np.isfinite(unit_s)
    slowest = unit_s[known].max() if known.any() else 0.0
    return np.where(known, unit_s, slowest)


def completed(window: Window, weight: Times, unit_s: Times, transfer_s: Times) -> Cases:
    """The cases in the window, and some a little slower; ``transfer_s`` has shape (K, N)."""
    seen = np.isfinite(window.arrival_s)
    load = np.maximum(window.load, 1)
    pace = (window.compute_s / (load * np.maximum(unit_s, 1e-9)))[seen]
    delay_s = np.maximum(window.arrival_s - window.compute_s - transfer_s, 0.0)[seen]
    weights = np.broadcast_to(weight[:, None], seen.shape)[seen]
    slower, rare = np.array(SLOWER).T
    slow = np.quantile(pace, 0.95) if len(pace) else 1.0
    return Cases(
        weight=np.concatenate([weights, rare * weights.sum()]),
        pace=np.concatenate([pace, slower * slow]),
        delay_s=np.concatenate([delay_s, np.zeros(len(slower))]),
    )


def scenarios(
    window: Window,
    weight: Times,
    *,
    cases: Cases,
    unit_s: Times,
    transfer_s: Times,
    draws: np.random.Generator,
) -> Scenarios:
    """Fill in what was cut off.

    Args:
        window: What was seen.
        weight: Of each iteration, shape (K,).
        cases: Completed returns of the window and, of longer ago, the late ones.
        unit_s: Typical seconds a unit, shape (N,).
        transfer_s: Time on the wires, shape (K, N).
        draws: Of what was cut off.
    """
    seen = np.isfinite(window.arrival_s)
    open_ = ~seen
    load = np.maximum(window.load, 1) * np.maximum(unit_s, 1e-9)
    scale_s = np.average(window.round_s, weights=weight)
    typical_s = np.broadcast_to(load, seen.shape)[open_]
    cut_s = np.where(window.load > 0, window.round_s[:, None] - transfer_s, -np.inf)[open_]
    beyond = typical_s[:, None] * cases.pace + cases.delay_s > cut_s[:, None]
    share, unseen = _self_consistent(beyond, cases.weight, _spread(weight, open_))
    picked = _draw(beyond, share, unseen, draws.random(len(cut_s)))
    longer_s = _longer(cut_s - typical_s, scale_s, draws.random(len(cut_s)))
    pace = np.divide(window.compute_s, load, out=np.ones(seen.shape), where=seen)
    pace[open_] = np.append(cases.pace, 1.0)[picked]
    delay_s = np.where(seen, window.arrival_s - window.compute_s - transfer_s, 0.0)
    delay_s = np.maximum(delay_s, 0.0)
    delay_s[open_] = np.where(picked < len(share), np.append(cases.delay_s, 0.0)[picked], longer_s)
    likely = np.ones(seen.shape)
    likely[open_] = beyond @ share + unseen
    stopped = _stopped(seen, window.load > 0, likely)
    delay_s[:, stopped] = 10 * LONGEST * scale_s
    return Scenarios(
        weight=weight / weight.sum(),
        unit_s=pace * unit_s,
        delay_s=delay_s,
        stopped=stopped,
        evidence=float(weight.sum() ** 2 / (weight**2).sum()),
    )


def _spread(weight: Times, open_: BoolArray) -> Times:
    return np.broadcast_to(weight[:, None], open_.shape)[open_]


def _self_consistent(beyond: BoolArray, weight: Times, cut_weight: Times) -> tuple[Times, float]:
    """How likely each case is, given those that were cut off [Turnbull76].

    The mass of what was cut off is shared among the cases that go beyond the cut, in proportion to
    how likely they are: for right-censored data this is the estimate of Kaplan and Meier, and it
    holds as well where load and pace move the cut. What no case explains is unseen.

    Returns:
        Shares of the cases, shape (P,), and of the unseen.
    """
    total = weight.sum() + cut_weight.sum()
    if total == 0.0:
        return weight, 1.0
    consistent = beyond.astype(np.float64)
    share, unseen = weight / total, UNSEEN
    for _ in range(STEPS):
        per_mass = cut_weight / (consistent @ share + unseen)
        share = (weight + share * (per_mass @ consistent)) / total
        unseen = max(UNSEEN, float(unseen * per_mass.sum() / total))
    return share, unseen


def _draw(beyond: BoolArray, share: Times, unseen: float, uniform: Times) -> IntArray:
    """A case for each cut, among those beyond it; P stands for the unseen."""
    mass = np.cumsum(beyond * share, axis=1)
    total = mass[:, -1] if mass.shape[1] else np.zeros(len(uniform))
    level = uniform * (total + unseen)
    return np.asarray((mass <= level[:, None]).sum(axis=1))


def _longer(least_s: Times, scale_s: float, uniform: Times) -> Times:
    """Unseen lateness, heavy-tailed from ``least_s`` on, or from little beside ``scale_s``."""
    return np.maximum(least_s, scale_s / LONGEST) / np.maximum(uniform, 1.0 / LONGEST)


def _stopped(seen: BoolArray, assigned: BoolArray, likely: Times) -> BoolArray:
    """Who has been out for so long that lateness does not explain it, shape (N,)."""
    newest_first = seen[::-1]
    silent = np.cumsum(newest_first, axis=0) == 0
    surprise = np.where(silent & assigned[::-1], np.log(np.maximum(likely[::-1], 1e-300)), 0.0)
    return np.asarray(surprise.sum(axis=0) < np.log(STOPPED))
