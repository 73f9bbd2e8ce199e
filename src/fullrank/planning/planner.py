"""The planner: observations in, a plan out; changes are few and each has a reason."""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from fullrank.codes.families.auto import START, Auto
from fullrank.common.seeding import stream
from fullrank.common.types import LearnerId, Matrix
from fullrank.planning.candidates import Candidate, candidates
from fullrank.planning.forecast import FREE, Forecast, fitted_wires, forecast, travelled
from fullrank.planning.luck import resampled
from fullrank.planning.machines import Scenarios, completed, scenarios, typical_unit_s
from fullrank.planning.memory import Memory
from fullrank.planning.observation import Observation, Window
from fullrank.planning.surprise import LOOKED_BACK, contradicting, repaced
from fullrank.planning.traffic import Times, Traffic, Wires

WINDOW = 128
"""Iterations looked back upon."""
FORGET = 0.99
"""Weight of an iteration over that of the next one: half in 69 iterations."""
OTHERS = 0.25
"""What an iteration of another code counts for when one grows older."""
RETURNS = 2048
"""Returns looked back upon at most: many learners tell as much in fewer iterations."""
SCENARIOS = 512
"""Rounds that every candidate plays;"""
SHARED_SCENARIOS = 128
"""fewer where wires are slow enough to be played as well."""
EVERY = 5
"""Iterations between plans."""
FIRST = 10
"""Iterations before the first plan."""
CHANGES = 3
"""Changes that may follow one another at once;"""
REFILL = 80
"""then one in so many iterations: at most CHANGES + 500 / REFILL in any 500."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A choice and why."""

    candidate: Candidate
    changed: bool
    reason: str
    forecasts: tuple[Forecast, ...] = ()
    """Of every candidate, the quickest first; empty before enough was seen."""


class Planner:
    """Plans for one run; equal observations give equal plans.

    Args:
        auto: The settings.
        units: M.
        seed: The run's seed.
        moved: Bytes that each row of a matrix moves.
        using: Label of the candidate in use.
        max_variance: Of the run's rounds, as of ``Arrivals``.
    """

    def __init__(
        self,
        auto: Auto,
        *,
        units: int,
        seed: int,
        moved: Callable[[Matrix], Traffic],
        using: str = f"cyclic,tolerance={START}",
        max_variance: float = math.inf,
    ) -> None:
        self._auto = auto
        self._units = units
        self._seed = seed
        self._moved = moved
        self._traffic_of: dict[Candidate, Traffic] = {}
        self._window: deque[Observation] = deque()
        self._recent: deque[tuple[float, float]] = deque(maxlen=LOOKED_BACK)
        self._expected: Forecast | None = None
        self._memory = Memory()
        self._using = using
        self._max_variance = max_variance
        self._seen = 0
        self._allowance = float(CHANGES)

    def observe(self, observation: Observation) -> None:
        """Take what was seen of an iteration."""
        self._window.append(observation)
        self._seen += 1
        while len(self._window) > min(WINDOW, max(FIRST, RETURNS // len(observation.learners))):
            self._forget(self._dispensable())
        if self._expected is not None:
            self._compare(observation.round_s, self._expected)
        self._allowance = min(CHANGES, self._allowance + 1 / REFILL)

    def _dispensable(self) -> int:
        """The oldest iteration of the code that was seen most: others tell what it does not show.

        A code that waits for few cuts off lateness; what a code that waited showed is kept until
        rounds contradict it.
        """
        codes = self._codes()
        return codes.index(max(codes, key=Counter(codes).__getitem__))

    def _codes(self) -> list[bytes]:
        """Of each iteration what tells its code from others: the loads."""
        return [observation.load.tobytes() for observation in self._window]

    def _forget(self, index: int) -> None:
        observation = self._window[index]
        del self._window[index]
        self._memory.retire(observation, now=self._seen - len(self._window) + index)

    def _compare(self, round_s: float, expected: Forecast) -> None:
        """When recent rounds are not as forecast, keep only those since the change."""
        self._recent.append((expected.rank(round_s), round_s))
        if since := contradicting(self._recent, expected.mean_s):
            self._keep(since)
            self._expected = None

    def _keep(self, newest: int) -> None:
        """Forget all but so many iterations."""
        while len(self._window) > newest:
            self._forget(0)
        self._recent.clear()

    def _forget_other_paces(self, learners: Sequence[LearnerId]) -> None:
        """When learners have come to another pace, keep only what was seen since."""
        codes = self._codes()
        alike = [code == codes[-1] for code in codes]
        window = Window.of(deque(compress(self._window, alike)), learners)
        if since := repaced(window.compute_s / np.maximum(window.load, 1)):
            self._keep(len(self._window) - int(np.flatnonzero(alike)[-since]))

    def plan(self, learners: Sequence[LearnerId]) -> Plan:
        """The code for the next iterations, row r held by the r-th of the learners."""
        known = candidates(rows=len(learners), units=self._units, seed=self._seed)
        current = self._among(known)
        self._forget_other_paces(learners)
        if len(self._window) < FIRST:
            reason = f"{len(self._window)} of the first {FIRST} iterations were seen"
            return Plan(current, False, reason)
        weight = FORGET ** self._ages()
        wires, likely = self._understand(learners, weight)
        forecasts = [
            forecast(each, self._traffic(each), likely, wires, max_variance=self._max_variance)
            for each in known
        ]
        return self._choose(known, forecasts, current)

    def _ages(self) -> Times:
        """Of each iteration: newer ones of its code, and a part of those of others, shape (K,).

        What a code that waited for many showed is not out of date for rounds that waited for few.
        """
        codes = np.unique(self._codes(), return_inverse=True)[1]
        newer = np.triu(np.where(codes[:, None] == codes, 1.0, OTHERS), k=1)
        return np.asarray(newer.sum(axis=1))

    def _traffic(self, candidate: Candidate) -> Traffic:
        """Of the rows that combine at least one unit."""
        if candidate not in self._traffic_of:
            matrix = candidate.code.matrix[candidate.code.load > 0]
            self._traffic_of[candidate] = self._moved(matrix)
        return self._traffic_of[candidate]

    def _among(self, known: Sequence[Candidate]) -> Candidate:
        """The choice in use as it is for the present learners, else the one of least tolerance."""
        return next((each for each in known if each.label == self._using), known[0])

    def _understand(self, learners: Sequence[LearnerId], weight: Times) -> tuple[Wires, Scenarios]:
        """What the window says of wires and learners."""
        window = Window.of(self._window, learners)
        unit_s = typical_unit_s(window, weight, self._memory.unit_s(learners))
        wires = self._wires(window, unit_s, learners)
        transfer_s = self._transfers(window, unit_s, wires, learners)
        cases = completed(window, weight, unit_s, transfer_s)
        past = scenarios(
            window,
            weight,
            cases=self._memory.extend(cases, now=self._seen),
            unit_s=unit_s,
            transfer_s=transfer_s,
            draws=stream(self._seed, "planner_cut_off", self._seen),
        )
        self._memory.learn(learners, unit_s)
        draws = stream(self._seed, "planner_scenario", self._seen)
        count = SCENARIOS if wires == FREE else SHARED_SCENARIOS
        return wires, resampled(past, count=count, draws=draws)

    def _wires(self, window: Window, unit_s: Times, learners: Sequence[LearnerId]) -> Wires:
        newest = self._window[-1]
        alike = [
            index
            for index, each in enumerate(self._window)
            if np.array_equal(each.load, newest.load)
        ]
        overhead_s = np.nanmin(window.arrival_s[alike] - window.compute_s[alike], axis=1)
        column = {learner: index for index, learner in enumerate(learners)}
        typical_s = np.array(
            [unit_s[column[each]] if each in column else 0.0 for each in newest.learners]
        )
        return fitted_wires(overhead_s, newest.load * typical_s, newest.moved)

    def _transfers(
        self, window: Window, unit_s: Times, wires: Wires, learners: Sequence[LearnerId]
    ) -> Times:
        """Time on the wires of each return in the window, shape (K, N)."""
        transfer_s = np.zeros(window.load.shape)
        if wires == FREE:
            return transfer_s
        column = {learner: index for index, learner in enumerate(learners)}
        busy_s = np.where(np.isfinite(window.compute_s), window.compute_s, window.load * unit_s)
        for rows in self._alike():
            seen = self._window[rows[0]]
            here = [index for index, each in enumerate(seen.learners) if each in column]
            cells = np.ix_(rows, [column[seen.learners[index]] for index in here])
            busy = np.zeros((len(rows), len(seen.learners)))
            busy[:, here] = busy_s[cells]
            transfer_s[cells] = (travelled(busy, seen.moved, wires) - busy)[:, here]
        return transfer_s

    def _alike(self) -> Collection[list[int]]:
        """Iterations of the window, those in which the same rows were held together."""
        groups: dict[object, list[int]] = {}
        for index, seen in enumerate(self._window):
            key = seen.learners, seen.load.tobytes(), seen.moved.parameters.tobytes()
            groups.setdefault(key, []).append(index)
        return groups.values()

    @property
    def _margin(self) -> float:
        """The share that a change must save: the more, the fewer changes are left."""
        return self._auto.margin * (1.0 + CHANGES - self._allowance)

    @staticmethod
    def _price(chosen: Candidate, current: Candidate) -> float:
        """Changes that must be left: who lowers the tolerance keeps one to raise it again."""
        lowers = chosen.code.tolerance < current.code.tolerance
        return 2.0 if lowers else 1.0

    def _choose(
        self, known: Sequence[Candidate], forecasts: Sequence[Forecast], current: Candidate
    ) -> Plan:
        """The candidate of the least cautious time, if by enough and a change is allowed."""
        ranked = tuple(sorted(forecasts, key=lambda each: each.cautious_s))
        now = next(each for each in ranked if each.label == current.label)
        best = ranked[0]
        chosen = next(each for each in known if each.label == best.label)
        if best is now:
            reason = f"nothing is quicker than {now}"
        elif best.cautious_s > (1.0 - self._margin) * now.cautious_s:
            reason = f"{best} saves too little over {now}"
        elif self._allowance < self._price(chosen, current):
            reason = f"{best} would be quicker than {now}, but the last changes were recent"
        else:
            self._allowance -= 1.0
            self._using, self._expected = chosen.label, best
            return Plan(chosen, True, f"{best} instead of {now}", ranked)
        self._using, self._expected = current.label, now
        return Plan(current, False, reason, ranked)
