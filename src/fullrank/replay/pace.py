"""Pace: how far episodes and updates may run ahead of each other.

The rule is Reverb's ratio of samples to inserts, counted in episodes: an iteration waits for the
episodes that are due before it, and an episode waits while too many are ahead of the iterations. If
one of them has to wait, the other need not. Where the controller appends, it decides that ratio,
because each sample names the head that it is drawn from; then the table keeps the window alone: no
row is evicted before a sample could draw it.
"""

from dataclasses import dataclass

from fullrank.common.errors import InvalidContribution

LEAST_RATIO, MOST_RATIO = 2.0**-20, 2.0**20
"""Range of a ratio other than 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The ratio of updates to episodes, and its slack on either side."""

    updates_per_episode: float
    """Ratio that the run keeps; 0: neither waits for the other."""
    slack: int
    """Episodes by which updates may run ahead of their due."""
    window: int
    """Episodes by which episodes may run ahead of the updates, at least 1."""
    warmup: int
    """Episodes before the first iteration."""
    max_lag: int
    """Committed iterations by which the parameters of an episode may be older than the newest."""
    first: int = 0
    """Iteration that was to begin when the table was empty: earlier ones need no episodes of it."""

    def __post_init__(self) -> None:
        ratio = self.updates_per_episode
        if ratio and not LEAST_RATIO <= ratio <= MOST_RATIO:
            raise InvalidContribution(
                f"pace.updates_per_episode is {ratio}; it is 0 or between 2^-20 and 2^20"
            )
        for name, least in (("slack", 0), ("window", 1), ("warmup", 0), ("max_lag", 0)):
            if (value := getattr(self, name)) < least:
                raise InvalidContribution(f"pace.{name} is {value}; it is at least {least}")

    def due(self, iteration: int) -> int:
        """Number of episodes without which an iteration may not begin."""
        least = max(1, self.warmup)
        if not self.updates_per_episode:
            return least
        iteration = max(0, iteration - self.first)
        after = int(iteration / self.updates_per_episode) - 1  # the quotient may be rounded
        while self.updates_per_episode * after < iteration:
            after += 1
        return max(least, self.warmup + after - self.slack)

    def may_update(self, iteration: int, *, episodes: int) -> bool:
        """True if an iteration may begin when this many episodes are stored."""
        return episodes >= self.due(iteration)

    def may_store(self, episodes: int, *, iteration: int) -> bool:
        """True if one more episode may be stored while this iteration is the newest."""
        if not self.updates_per_episode:
            return True
        ahead = episodes + 1 - self.warmup - self.window
        return self.updates_per_episode * ahead <= max(0, iteration - self.first)

    def is_stale(self, version: int, *, iteration: int) -> bool:
        """True if an episode began with parameters too old for the newest iteration."""
        return version < iteration - self.max_lag


class RateLimiter:
    """Decides whether an append has to wait.

    Before the first sample no append waits: a run fills its table, or repeats committed rows.

    Args:
        window: Most positions by which the head may exceed that of the newest sample.
    """

    def __init__(self, *, window: int) -> None:
        self._window = window
        self._sampled: int | None = None

    def sampled(self, head: int) -> None:
        """Record a sample drawn from positions below ``head``."""
        self._sampled = max(head, self._sampled or 0)

    def admits(self, head: int) -> bool:
        """True if rows up to ``head`` may be stored now."""
        return self._sampled is None or head - self._sampled <= self._window
