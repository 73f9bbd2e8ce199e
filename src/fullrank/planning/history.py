"""What outlives the window: how late the late ones were, and how fast each learner is.

A code that waits for nobody shows no lateness; what an earlier one showed is kept for a while.
"""

from collections.abc import Sequence

import numpy as np

from fullrank.common.types import LearnerId
from fullrank.planning.machines import Cases
from fullrank.planning.observation import Observation
from fullrank.planning.traffic import Times

FORGET = 0.97
"""Weight of a case over that of one an iteration newer."""
REMEMBERED = 2e-4
"""Prior share of all that is remembered: it explains only what nothing in the window does."""
KEPT = 128
"""Cases kept at most, the newest."""
LATE = 0.25
"""Cases are kept whose delay is above this share of the typical computing time."""


class Memory:
    """Cases and paces of iterations that have left the window."""

    def __init__(self) -> None:
        self._unit_s: dict[LearnerId, float] = {}
        self._cases: list[tuple[int, float, float]] = []

    def unit_s(self, learners: Sequence[LearnerId]) -> Times:
        """Seconds a unit as last known, nan where nothing is, shape (N,)."""
        return np.array([self._unit_s.get(learner, np.nan) for learner in learners])

    def extend(self, cases: Cases, *, now: int) -> Cases:
        """The cases of the window, and with little weight those remembered."""
        if not self._cases:
            return cases
        when, pace, delay_s = np.array(self._cases).T
        weight = FORGET ** (now - when)
        weight *= REMEMBERED * cases.weight.sum() / max(1.0, weight.sum())
        return Cases(
            weight=np.concatenate([cases.weight, weight]),
            pace=np.concatenate([cases.pace, pace]),
            delay_s=np.concatenate([cases.delay_s, delay_s]),
        )

    def learn(self, learners: Sequence[LearnerId], unit_s: Times) -> None:
        """Note the typical seconds a unit."""
        self._unit_s.update(zip(learners, unit_s.tolist(), strict=True))

    def retire(self, observation: Observation, *, now: int) -> None:
        """Keep the late ones of an iteration that leaves the window.

        Their delay is what their overhead exceeds the least overhead of the round by.
        """
        overhead_s = observation.arrival_s - observation.compute_s
        delay_s = overhead_s - np.nanmin(overhead_s)
        late = delay_s[delay_s > LATE * np.nanmedian(observation.compute_s)]
        self._cases = [*self._cases, *((now, 1.0, float(each)) for each in late)][-KEPT:]
