"""The history that a plan rests on: a window of iterations, late cases, and links behind them."""

from collections import Counter, deque
from collections.abc import Collection, Sequence
from itertools import compress

import numpy as np

from fullrank.codes.base import Code
from fullrank.common.types import LearnerId, Times
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.delay_model import Cases
from fullrank.planning.observation import Observation, Window
from fullrank.planning.portable import exp, log, power
from fullrank.planning.tuning import TUNING


class History:
    """The newest iterations, more of them for codes that were observed less often.

    A code that waits for few learners cuts off lateness; iterations of a code that waited for more
    stay until rounds contradict them.

    Attributes:
        total: Number of all observations, also of forgotten ones.
        earlier: Late cases of the iterations that have left the window.
    """

    def __init__(self) -> None:
        self._window: deque[Observation] = deque()
        self.total = 0
        self.earlier = EarlierCases()

    def __len__(self) -> int:
        return len(self._window)

    def append(self, observation: Observation) -> None:
        """Add an iteration; drop the oldest ones of the code with the most, if there are too many.

        The number is limited by ``Tuning.window`` and ``Tuning.window_returns``.
        """
        self._window.append(observation)
        self.total += 1
        returns = TUNING.window_returns // len(observation.learners)
        while len(self._window) > min(TUNING.window, max(TUNING.first, returns)):
            codes = self._codes()
            self._retire(codes.index(max(codes, key=Counter(codes).__getitem__)))

    def keep(self, newest: int) -> None:
        """Retire all but so many iterations."""
        while len(self._window) > newest:
            self._retire(0)

    def _retire(self, index: int) -> None:
        observation = self._window[index]
        del self._window[index]
        self.earlier.retire(observation, now=self.total - len(self._window) + index)

    def _codes(self) -> list[bytes]:
        """A key of each iteration's code: its loads."""
        return [observation.load.tobytes() for observation in self._window]

    def window(self, learners: Sequence[LearnerId]) -> Window:
        """All iterations, for the present learners."""
        return Window.of(self._window, learners)

    def paces_of_newest_code(self, learners: Sequence[LearnerId]) -> Times:
        """Seconds a unit in the iterations of the newest code, shape (K', N)."""
        codes = self._codes()
        same = [code == codes[-1] for code in codes]
        window = Window.of(list(compress(self._window, same)), learners)
        return np.asarray(window.compute_s / np.maximum(window.load, 1))

    def since_of_newest_code(self, count: int) -> int:
        """Number of latest iterations that include ``count`` of the newest code."""
        codes = self._codes()
        same = np.flatnonzero([code == codes[-1] for code in codes])
        return len(codes) - int(same[-count])

    def weights(self) -> Times:
        """Weights of the iterations by age, shape (K,).

        An iteration ages by newer ones of its code, and more slowly by those of other codes: a code
        that waited for many is not outdated by rounds that waited for few.
        """
        codes = np.unique(self._codes(), return_inverse=True)[1]
        others = TUNING.others
        steps = np.where(codes[:, None] == codes, others, 1)
        ages = np.asarray(np.triu(steps, k=1).sum(axis=1))
        return power(float(exp(log(np.array(TUNING.ageing)) / others)), ages)

    def groups(self) -> Collection[list[int]]:
        """Indices of the iterations, grouped by learners, loads and bytes."""
        groups: dict[object, list[int]] = {}
        for index, observation in enumerate(self._window):
            load, parameters = observation.load.tobytes(), observation.moved.parameters.tobytes()
            groups.setdefault((observation.learners, load, parameters), []).append(index)
        return groups.values()

    def __getitem__(self, index: int) -> Observation:
        return self._window[index]


class EarlierCases:
    """Late cases and paces of iterations that have left the window.

    A code that waits for few shows no lateness; late returns under earlier codes are kept for a
    while with little weight.
    """

    def __init__(self) -> None:
        self._unit_s: dict[LearnerId, float] = {}
        self._cases: list[tuple[int, float, float]] = []

    def unit_s(self, learners: Sequence[LearnerId]) -> Times:
        """The last estimates of seconds a unit, nan where there are none, shape (N,)."""
        return np.array([self._unit_s.get(learner, np.nan) for learner in learners])

    def update(self, learners: Sequence[LearnerId], unit_s: Times) -> None:
        """Store estimates of seconds a unit."""
        self._unit_s.update(zip(learners, unit_s.tolist(), strict=True))

    def extend(self, cases: Cases, *, now: int) -> Cases:
        """The cases of the window and, with little weight, the earlier ones."""
        if not self._cases:
            return cases
        when, pace, delay_s = np.array(self._cases).T
        weight = power(TUNING.case_ageing, (now - when).astype(np.int64))
        weight *= TUNING.earlier_cases_share * cases.weight.sum() / max(1.0, weight.sum())
        return Cases(
            weight=np.concatenate([cases.weight, weight]),
            pace=np.concatenate([cases.pace, pace]),
            delay_s=np.concatenate([cases.delay_s, delay_s]),
        )

    def retire(self, observation: Observation, *, now: int) -> None:
        """Keep the late cases of an iteration that leaves the window.

        A delay is the overhead of a return beyond the least one of its round.
        """
        overhead_s = observation.arrival_s - observation.compute_s
        if np.isnan(overhead_s).all():
            return
        delay_s = overhead_s - np.nanmin(overhead_s)
        late = delay_s[delay_s > TUNING.late_share * np.nanmedian(observation.compute_s)]
        cases = [*self._cases, *((now, 1.0, float(delay)) for delay in late)]
        self._cases = cases[-TUNING.earlier_cases :]


FREE = Links()


def arrival_times(busy_s: Times, moved: Traffic, links: Links) -> Times:
    """Arrivals of learners that compute and wait for ``busy_s``, both of shape (K, R)."""
    if links == FREE:
        return busy_s
    ready_s = links.ready_s(moved)
    return np.array([links.arrival_s(ready_s + round_s, moved) for round_s in busy_s])


def again_s(links: Links, moved: Traffic, code: Code) -> float:
    """Time to ask a learner for one more unit, and to move its vector.

    Args:
        links: Between the services.
        moved: Bytes of the shares.
        code: Their code.
    """
    vector = float(moved.coded.max()) / code.rows_per_learner
    return 2 * links.latency_s + vector / links.bandwidth


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
    overhead_s = np.fmin.reduce(window.arrival_s[same] - window.compute_s[same], axis=1)
    overhead_s = overhead_s[np.isfinite(overhead_s)]
    if not len(overhead_s):  # others computed every unit before its holder returned
        return FREE
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
