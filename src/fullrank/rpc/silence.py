"""Patience with a silent peer, which follows the intervals at which it was heard."""

from collections import deque

from fullrank.common.deadlines import limit_s
from fullrank.config.tree import ControllerSettings

KEPT = 64
"""Intervals that count."""


class Silence:
    """The silence of one peer, and its limit.

    A peer on a starved host is heard late, again and again: its limit grows with its intervals.
    Until some are measured it is as patient as the first rounds.

    Args:
        settings: Bounds of the limit.
        now: Time of a monotonic clock, seconds.
        unmeasured_s: The limit before there are enough intervals; by default, the longer one of
            ``lost_after_s`` and ``deadline_s``.
    """

    def __init__(
        self, settings: ControllerSettings, *, now: float, unmeasured_s: float | None = None
    ) -> None:
        self._settings, self._heard_at = settings, now
        self._unmeasured_s = unmeasured_s or max(settings.lost_after_s, settings.deadline_s)
        self._intervals_s: deque[float] = deque(maxlen=KEPT)

    def heard(self, *, now: float) -> None:
        """Record a sign of life that is sent every ``heartbeat_s``."""
        self._intervals_s.append(now - self._heard_at)
        self._heard_at = now

    @property
    def latest_s(self) -> float:
        """The latest interval, seconds; 0 before the first."""
        return self._intervals_s[-1] if self._intervals_s else 0.0

    @property
    def limit_s(self) -> float:
        """Seconds of silence after which the peer counts as lost."""
        return limit_s(
            self._intervals_s,
            factor=self._settings.deadline_factor,
            least_s=self._settings.lost_after_s,
            unmeasured_s=self._unmeasured_s,
        )
