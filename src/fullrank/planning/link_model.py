"""The link model: bandwidths and transfer times behind observed arrivals."""

from collections.abc import Sequence

import numpy as np

from fullrank.common.types import LearnerId, Times
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.history import History
from fullrank.planning.observation import Window
from fullrank.planning.tuning import TUNING

FREE = Links()


def arrival_times(busy_s: Times, moved: Traffic, links: Links) -> Times:
    """Arrivals of learners that compute and wait for ``busy_s``, both of shape (K, R)."""
    if links == FREE:
        return busy_s
    ready_s = links.ready_s(moved)
    return np.array([links.arrival_s(ready_s + round_s, moved) for round_s in busy_s])


def transfer_times(
    history: History, window: Window, unit_s: Times, links: Links, learners: Sequence[LearnerId]
) -> Times:
    """Time of each return of the window on the links, shape (K, N)."""
    transfer_s = np.zeros(window.load.shape)
    if links == FREE:
        return transfer_s
    column = {learner: index for index, learner in enumerate(learners)}
    busy_s = np.where(np.isfinite(window.compute_s), window.compute_s, window.load * unit_s)
    for rows in history.groups():
        observation = history[rows[0]]
        ids = observation.learners
        present = [index for index, learner in enumerate(ids) if learner in column]
        cells = np.ix_(rows, [column[ids[index]] for index in present])
        busy = np.zeros((len(rows), len(ids)))
        busy[:, present] = busy_s[cells]
        arrival_s = arrival_times(busy, observation.moved, links)
        transfer_s[cells] = (arrival_s - busy)[:, present]
    return transfer_s


def estimate_links(
    history: History, window: Window, unit_s: Times, learners: Sequence[LearnerId]
) -> Links:
    """The links that explain the overheads of the newest code."""
    newest = history[-1]
    same = [
        index for index in range(len(history)) if np.array_equal(history[index].load, newest.load)
    ]
    overhead_s = np.nanmin(window.arrival_s[same] - window.compute_s[same], axis=1)
    column = {learner: index for index, learner in enumerate(learners)}
    typical_s = np.array(
        [unit_s[column[learner]] if learner in column else 0.0 for learner in newest.learners]
    )
    return fit_links(overhead_s, newest.load * typical_s, newest.moved)


def fit_links(overhead_s: Times, busy_s: Times, moved: Traffic) -> Links:
    """The bandwidth at which the least overhead of a round is the median of the observed ones.

    The overhead of a return is its time beyond computing; the least one of a round has no delay.

    Args:
        overhead_s: Least overheads of some rounds.
        busy_s: Typical computing times of these rounds, shape (R,).
        moved: Bytes of their rows.
    """
    median_s, longest_s = float(np.median(overhead_s)), float(busy_s.max())
    total = float((moved.parameters + moved.sample + moved.digests + moved.coded).sum())
    if total == 0.0 or median_s < TUNING.negligible_overhead * longest_s:
        return FREE
    slow, fast = 1e-3 * total / median_s, 1e3 * total / median_s
    for _ in range(TUNING.bandwidth_bisections):
        middle = float(np.sqrt(slow * fast))
        links = Links(bandwidth=middle, replay_bandwidth=middle)
        least_s = float((arrival_times(busy_s[None], moved, links)[0] - busy_s).min())
        slow, fast = (middle, fast) if least_s > median_s else (slow, middle)
    return Links(bandwidth=slow, replay_bandwidth=slow)
