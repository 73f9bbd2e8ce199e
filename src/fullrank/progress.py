"""What a person is told of each iteration, in a terminal, a pipe or a service's log."""

from collections import deque
from collections.abc import Callable

from fullrank.metrics import IterationRecord

HEADERS = ("iteration", "return", "round", "|J|", "late", "kappa", "exact")

SMOOTHED = 20
"""Iterations that the return is averaged over."""
LINE_PERIOD_S = 5.0
"""Least time between two lines."""


class Cells:
    """Records as the texts below ``HEADERS``."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=SMOOTHED)

    def of(self, record: IterationRecord) -> tuple[str, ...]:
        """The texts; the return is the mean over the last iterations in which an episode ended."""
        if record.return_mean is not None:
            self._returns.append(record.return_mean)
        returns = self._returns
        return (
            str(record.iteration),
            f"{sum(returns) / len(returns):.1f}" if returns else "-",
            f"{1000 * record.round_s:.0f} ms",
            str(len(record.received)),
            ",".join(map(str, record.late)) or "-",
            "-" if record.condition is None else f"{record.condition:.1f}",
            "yes" if record.exact else f"±{record.error_bound or 0.0:.0e}",
        )


class Lines:
    """Records as lines, one every few seconds.

    Args:
        say: Takes a line.
        iterations: Iterations of the run.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, say: Callable[[str], None], *, iterations: int, clock: Callable[[], float]
    ) -> None:
        self._say = say
        self._iterations = iterations
        self._clock = clock
        self._cells = Cells()
        self._next = 0.0
        self._pending: str | None = None

    def write(self, record: IterationRecord) -> None:
        """Say it if the last line is old enough."""
        pairs = zip(HEADERS[1:], self._cells.of(record)[1:], strict=True)
        text = "  ".join(f"{name} {cell}" for name, cell in pairs)
        self._pending = f"iteration {record.iteration + 1}/{self._iterations}  {text}"
        if self._clock() >= self._next:
            self.close()
            self._next = self._clock() + LINE_PERIOD_S

    def close(self) -> None:
        """Say the last record if it was not said."""
        if self._pending is not None:
            self._say(self._pending)
        self._pending = None
