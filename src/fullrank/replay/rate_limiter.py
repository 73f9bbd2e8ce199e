"""How far appends may run ahead of those who sample.

Reverb lets a table have so many samples for an insert, within a window. Here whoever fixes a sample
names the head that it is drawn from, and so decides that ratio; what is left to a table is the
window: no row is evicted that no sample could have had.
"""


class RateLimiter:
    """Says when an append has to wait.

    Before the first sample nothing does: a run fills its table, or repeats what it had committed.

    Args:
        window: Positions that the head may be beyond that of the newest sample.
    """

    def __init__(self, *, window: int) -> None:
        self._window = window
        self._sampled: int | None = None

    def sampled(self, head: int) -> None:
        """Note a sample that was drawn from below ``head``."""
        self._sampled = max(head, self._sampled or 0)

    def admits(self, head: int) -> bool:
        """Whether rows up to ``head`` may be stored now."""
        return self._sampled is None or head - self._sampled <= self._window
