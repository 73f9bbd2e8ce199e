"""Limit of how far appends may run ahead of samples.

Reverb bounds the number of samples for each insert, within a window. Here the controller decides
that ratio, because each sample names the head that it is drawn from. The table keeps the window: no
row is evicted before a sample could draw it.
"""


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
