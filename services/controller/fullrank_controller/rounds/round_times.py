"""Durations of the last rounds, and the deadline that follows from them."""

from collections import deque
from statistics import median

from fullrank.common.deadlines import limit_s
from fullrank.config.tree import ControllerSettings

MEASURED_ROUNDS = 100
"""Most recent rounds that determine the deadline."""
PATIENCE = 2.0
"""Median round times to wait for the late reports of an audited iteration."""


class RoundTimes:
    """Durations of the last rounds and the limits that follow from them.

    Args:
        settings: Bounds of the deadline.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._times: deque[float] = deque(maxlen=MEASURED_ROUNDS)

    def add(self, round_s: float) -> None:
        """Take the duration of a committed round into account."""
        self._times.append(round_s)

    @property
    def deadline_s(self) -> float:
        """The deadline of a round; the configured one until enough rounds are measured."""
        return limit_s(
            self._times,
            factor=self._settings.deadline_factor,
            least_s=self._settings.least_deadline_s,
            unmeasured_s=self._settings.deadline_s,
        )

    @property
    def patience_s(self) -> float:
        """The longest wait for late reports."""
        return PATIENCE * median(self._times) if self._times else self.deadline_s
