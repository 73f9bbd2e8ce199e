"""Progress of a run as text, for a terminal, a pipe or a service's log."""

from collections import defaultdict, deque
from collections.abc import Callable
from statistics import fmean

from fullrank.common.text import decimal
from fullrank.runs.record import IterationRecord

HEADERS = ("iteration", "return", "round", "|J|", "late", "kappa", "exact")

SMOOTHED = 20
"""Number of iterations over which the return is averaged."""
LINE_PERIOD_S = 5.0
"""Shortest time between two lines."""


class Cells:
    """Formats records as the table cells below ``HEADERS``.

    A run that goes on has its records read again: its means begin anew where they begin.
    """

    def __init__(self) -> None:
        self._iteration, self._returns = -1, _Mean()
        self._sides: dict[str, _Mean] = defaultdict(_Mean)
        self._won = _Mean()

    def formatted(self, record: IterationRecord) -> tuple[str, ...]:
        """Cells of a record; the return is a mean over recent iterations that ended an episode."""
        if record.iteration <= self._iteration:
            self._returns, self._sides, self._won = _Mean(), defaultdict(_Mean), _Mean()
        self._iteration = record.iteration
        self._returns.update(record.return_mean)
        for side, value in record.side_returns.items():
            self._sides[side].update(value)
        self._won.update(None if record.win_rate is None else 100 * record.win_rate)
        return (
            str(record.iteration),
            self._return(),
            f"{1000 * record.round_s:.0f} ms",
            str(len(record.received)),
            ",".join(map(str, record.late)) or "-",
            "-" if record.condition is None else f"{record.condition:.1f}",
            _exactness(record),
        )

    def _return(self) -> str:
        """Return of all agents, of each side if there are several, and share of wins if any."""
        sides = self._sides.items() if len(self._sides) > 1 else ()
        parts = [f"{side} {value}" for side, value in sides]
        parts += [f"won {self._won} %"] if self._won else []
        return f"{self._returns} ({', '.join(parts)})" if parts else str(self._returns)


def _exactness(record: IterationRecord) -> str:
    if record.variance is not None:
        return f"noise x{record.variance:.2f}"
    return "yes" if record.exact else f"±{record.error_bound or 0.0:.0e}"


class _Mean:
    """A running mean as text; ``-`` before its first value."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=SMOOTHED)

    def update(self, value: float | None) -> None:
        """Add a value; None is ignored."""
        if value is not None:
            self._last.append(value)

    def __bool__(self) -> bool:
        return bool(self._last)

    def __str__(self) -> str:
        return decimal(fmean(self._last)) if self._last else "-"


class Lines:
    """Writes records as lines, one every few seconds.

    Args:
        say: Takes a line.
        iterations: Number of iterations of the run.
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

    def write(self, *records: IterationRecord) -> None:
        """Write the last of the records if enough time has passed since the last line."""
        for record in records:
            cells = zip(HEADERS[1:], self._cells.formatted(record)[1:], strict=True)
            begun = f"iteration {record.iteration + 1}/{self._iterations}"
            self._pending = "  ".join([begun, *map(" ".join, cells)])
        if self._pending is not None and self._clock() >= self._next:
            self.close()
            self._next = self._clock() + LINE_PERIOD_S

    def close(self) -> None:
        """Write the last record if it was not written."""
        if self._pending is not None:
            self._say(self._pending)
        self._pending = None
