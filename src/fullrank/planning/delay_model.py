"""The delay model: the time that every learner would have taken in each past iteration.

A learner's return takes transfer + load x unit time + delay, the delay independent of the load.
Observed returns of one iteration stay together, since lateness may be joint (exactly k of N);
returns that the commit cut off are drawn from the cases that go beyond the cut. Resampled
iterations preserve the systematic differences between learners.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.common.types import BoolArray, IntArray, Times
from fullrank.planning.observation import Window
from fullrank.planning.portable import exp, log, product
from fullrank.planning.tuning import TUNING

SHARES, MASSES = 40, 24
"""Binary places of the shares of cases, and of the masses over them, in products."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cases:
    """P completed returns, arrays of shape (P,)."""

    weight: Times
    pace: Times
    """Computing time over the typical one of the learner."""
    delay_s: Times


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenarios:
    """K possible iterations of N learners."""

    weight: Times
    """Weights of the iterations, shape (K,); they sum to 1."""
    unit_s: Times
    """Seconds a unit of each learner, shape (K, N)."""
    delay_s: Times
    """Delay of each learner, shape (K, N)."""
    stopped: BoolArray
    """Learners from which no return is expected any more, shape (N,)."""
    evidence: float
    """Effective number of iterations behind the scenarios."""


def typical_unit_s(window: Window, weight: Times, before: Times) -> Times:
    """Each learner's typical seconds a unit, shape (N,).

    Args:
        window: The observed iterations.
        weight: Weights of the iterations, shape (K,).
        before: Earlier estimates, nan where there are none; used for learners never received.
    """
    observed = np.isfinite(window.compute_s)
    pace = np.where(observed, window.compute_s, 1.0) / np.maximum(window.load, 1)
    weights = weight[:, None] * observed
    total = weights.sum(axis=0)
    mean = exp((weights * log(np.maximum(pace, 1e-9))).sum(axis=0) / np.maximum(total, 1e-300))
    unit_s = np.where(total > 0, mean, before)
    estimated = np.isfinite(unit_s)
    slowest = unit_s[estimated].max() if estimated.any() else 0.0
    return np.where(estimated, unit_s, slowest)


def completed_cases(window: Window, weight: Times, unit_s: Times, transfer_s: Times) -> Cases:
    """Cases of the window and rare slower ones; ``transfer_s`` has shape (K, N)."""
    observed = np.isfinite(window.arrival_s)
    load = np.maximum(window.load, 1)
    pace = (window.compute_s / (load * np.maximum(unit_s, 1e-9)))[observed]
    delay_s = np.maximum(window.arrival_s - window.compute_s - transfer_s, 0.0)[observed]
    weights = np.broadcast_to(weight[:, None], observed.shape)[observed]
    slower, rare = np.array(TUNING.slower_paces).T
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
    """The observed iterations with draws in place of the returns that were cut off.

    Args:
        window: The observed iterations.
        weight: Weights of the iterations, shape (K,).
        cases: Completed returns of the window, and earlier late ones.
        unit_s: Typical seconds a unit, shape (N,).
        transfer_s: Time of each return on the links, shape (K, N).
        draws: Generator for the returns that were cut off.
    """
    observed = np.isfinite(window.arrival_s)
    cut = ~observed
    load = np.maximum(window.load, 1) * np.maximum(unit_s, 1e-9)
    scale_s = np.average(window.round_s, weights=weight)
    typical_s = np.broadcast_to(load, observed.shape)[cut]
    least_s = (window.round_s[:, None] - transfer_s)[cut]
    cut_s = np.where(window.load[cut] > 0, least_s, -np.inf)
    beyond = typical_s[:, None] * cases.pace + cases.delay_s > cut_s[:, None]
    cut_weight = np.broadcast_to(weight[:, None], cut.shape)[cut]
    share, unseen = _self_consistent(beyond, cases.weight, cut_weight)
    picked = _draw(beyond, share, unseen, draws.random(len(cut_s)))
    longer_s = _longer(least_s - typical_s, scale_s, draws.random(len(cut_s)))
    pace = np.divide(window.compute_s, load, out=np.ones(cut.shape), where=observed)
    pace[cut] = np.append(cases.pace, 1.0)[picked]
    delay_s = np.where(observed, window.arrival_s - window.compute_s - transfer_s, 0.0)
    delay_s = np.maximum(delay_s, 0.0)
    delay_s[cut] = np.where(picked < len(share), np.append(cases.delay_s, 0.0)[picked], longer_s)
    likely = np.ones(cut.shape)
    likely[cut] = product(beyond, share, digits=SHARES) + unseen
    stopped = _stopped(observed, window.load > 0, likely)
    delay_s[:, stopped] = 10 * TUNING.longest * scale_s
    return Scenarios(
        weight=weight / weight.sum(),
        unit_s=pace * unit_s,
        delay_s=delay_s,
        stopped=stopped,
        evidence=float(weight.sum() ** 2 / (weight**2).sum()),
    )


def _self_consistent(beyond: BoolArray, weight: Times, cut_weight: Times) -> tuple[Times, float]:
    """Probabilities of the cases by self-consistency, given the censored returns [Turnbull76].

    The mass of a censored return is shared among the cases that go beyond its cut, in proportion to
    their probabilities: for right-censored data this is the Kaplan-Meier estimate, and it also
    holds where load and pace move the cut. Mass that no case explains is unseen.

    Returns:
        Shares of the cases, shape (P,), and of unseen lateness.
    """
    total = weight.sum() + cut_weight.sum()
    if total == 0.0:
        return weight, 1.0
    consistent = beyond.astype(np.float64)  # products of which are much quicker
    share, unseen = weight / total, TUNING.unseen
    for _ in range(TUNING.censoring_steps):
        per_mass = cut_weight / (product(consistent, share, digits=SHARES) + unseen)
        share = (weight + share * product(consistent.T, per_mass, digits=MASSES)) / total
        unseen = max(TUNING.unseen, float(unseen * per_mass.sum() / total))
    return share, unseen


def _draw(beyond: BoolArray, share: Times, unseen: float, uniform: Times) -> IntArray:
    """A case beyond each cut; P stands for unseen lateness."""
    mass = np.cumsum(beyond * share, axis=1)
    total = mass[:, -1] if mass.shape[1] else np.zeros(len(uniform))
    level = uniform * (total + unseen)
    return np.asarray((mass <= level[:, None]).sum(axis=1))


def _longer(least_s: Times, scale_s: float, uniform: Times) -> Times:
    """Pareto lateness of index 1 from ``least_s`` on, or from a small share of ``scale_s``."""
    longest = TUNING.longest
    return np.maximum(least_s, scale_s / longest) / np.maximum(uniform, 1.0 / longest)


def _stopped(observed: BoolArray, assigned: BoolArray, likely: Times) -> BoolArray:
    """Learners silent for so long that lateness does not explain it, shape (N,)."""
    silent = np.cumsum(observed[::-1], axis=0) == 0
    log_chance = np.where(silent & assigned[::-1], log(np.maximum(likely[::-1], 1e-300)), 0.0)
    return np.asarray(log_chance.sum(axis=0) < log(np.array(TUNING.stopped)))


def resample(past: Scenarios, *, count: int, draws: np.random.Generator) -> Scenarios:
    """``count`` equally likely scenarios; each learner keeps its typical pace.

    Rare coincidences decide between codes, for example three of fifteen learners late at once, and
    a past iteration shows one of them. Where the late learners are random, each iteration stands
    for all its permutations; where learners are late independently, returns of all iterations are
    combined.
    """
    typical_s = np.average(past.unit_s, axis=0, weights=past.weight)
    iteration = _iterations(past.weight, count, draws)[:, None]
    active = ~past.stopped
    learner = np.broadcast_to(np.arange(len(active)), (count, len(active))).copy()
    late = lateness(past)[:, active]
    if exchangeable(late, past.weight):
        if independent(late > 0, past.weight):
            iteration = draws.choice(len(past.weight), size=learner.shape, p=past.weight)
        learner[:, active] = draws.permuted(learner[:, active], axis=1)
    return Scenarios(
        weight=np.full(count, 1.0 / count),
        unit_s=(past.unit_s / typical_s)[iteration, learner] * typical_s,
        delay_s=past.delay_s[iteration, learner],
        stopped=past.stopped,
        evidence=past.evidence,
    )


def _iterations(weight: Times, count: int, draws: np.random.Generator) -> IntArray:
    """Systematic sample of the iterations in proportion to their weights."""
    levels = (np.arange(count) + draws.random()) / count
    picked = np.searchsorted(np.cumsum(weight), levels)
    return np.minimum(picked, len(weight) - 1).astype(np.int64)


def lateness(past: Scenarios) -> Times:
    """Lateness in whole units of computing time, so that small differences do not count, (K, N)."""
    typical_s = np.average(past.unit_s, axis=0, weights=past.weight)
    excess_s = past.delay_s + past.unit_s - typical_s
    return np.clip(np.rint(excess_s / np.median(typical_s)), 0.0, TUNING.most_late)


def exchangeable(late: Times, weight: Times) -> bool:
    """True if chance explains the differences in lateness, of shape (K, N), between learners.

    Compares the variance of the learners' mean lateness with that of a random permutation within
    each iteration, weighted with ``weight`` of shape (K,).
    """
    if late.shape[1] < 2:
        return False
    by_chance = float((weight**2 * late.var(axis=1, ddof=1)).sum())
    mean = (weight[:, None] * late).sum(axis=0)
    return float(mean.var(ddof=1)) <= TUNING.unequal * by_chance


def independent(late: BoolArray, weight: Times) -> bool:
    """True if the number of late learners varies as if they were late independently."""
    number = late.sum(axis=1)
    mean = float((weight * number).sum())
    binomial = mean * (1.0 - mean / late.shape[1])
    variance = float((weight * (number - mean) ** 2).sum())
    least, most = TUNING.independent
    return bool(least * binomial <= variance <= most * binomial)
