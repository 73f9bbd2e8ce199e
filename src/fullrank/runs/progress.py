"""Progress of a run as text, for a terminal, a pipe or a service's log."""

from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import fsum, isfinite

from fullrank.common.text import decimal
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import STEPS as ENV_STEPS

LEARNING = ("iteration", "return", "steps", "steps/s", "round", "late")
"""Columns of a run's progress."""
CODING = ("|J|", "kappa", "exact")
"""Columns of its rounds' codes, beside those."""

SMOOTHED = 20
"""Number of iterations over which the return is averaged."""
LINE_PERIOD_S = 5.0
"""Shortest time between two lines."""
MEASURED = 100
"""Number of iterations from whose time the time left is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceReturns:
    """Returns that a run's are compared with, as far as they are known."""

    random: float | None = None
    """Mean return of random play."""
    good: float | None = None
    """Mean return of the environment's good policy."""
    greedy: float | None = None
    """Mean return without exploration, by the policies after ``iterations``."""
    iterations: int = 0

    def place(self, value: float) -> str:
        """Place of a return among the references, in brackets; empty without any."""
        if self.random is None:
            return ""
        words = f"random {decimal(self.random)}"
        if self.good is not None:
            words += f" ... good {decimal(self.good)}"
        return f" ({', '.join(filter(None, (words, self._share(value))))})"

    def __str__(self) -> str:
        """Return without exploration, with the share of the gap that it has closed."""
        if self.greedy is None:
            return ""
        share = self._share(self.greedy)
        closed = f" ({share})" if share else ""
        return f"greedy {decimal(self.greedy)} after {self.iterations}{closed}"

    def _share(self, value: float) -> str:
        if self.random is None or self.good is None or self.random == self.good:
            return ""
        return f"{(value - self.random) / (self.good - self.random):.0%}"


class Cells:
    """Formats records as the table cells below ``LEARNING``, and ``CODING`` if these are shown.

    A run that goes on has its records read again: its means begin anew where they begin.

    Attributes:
        standing: Returns that those of the records are compared with.
    """

    def __init__(self, *, coding: bool) -> None:
        self.standing = ReferenceReturns()
        self.headers = (*LEARNING, *CODING) if coding else LEARNING
        self._iteration, self._returns, self._rate = -1, _Mean(), _Mean()
        self._sides: dict[str, _Mean] = defaultdict(_Mean)
        self._won = _Mean()

    def update(self, record: IterationRecord) -> None:
        """Take a record, whose return and rate enter the means."""
        if record.iteration <= self._iteration:
            self._returns, self._sides, self._won = _Mean(), defaultdict(_Mean), _Mean()
        self._iteration = record.iteration
        self._returns.update(record.return_mean)
        for side, value in record.side_returns.items():
            self._sides[side].update(value)
        self._won.update(None if record.win_rate is None else 100 * record.win_rate)
        self._rate.update(record.env_steps_per_s)

    def formatted(self, record: IterationRecord) -> tuple[str, ...]:
        """Cells of the record taken last; its return is a mean over iterations that ended one."""
        steps = record.statistics.get(ENV_STEPS)
        cells = (
            str(record.iteration),
            self._return(),
            "-" if steps is None else f"{steps:,.0f}",
            self._rate.whole(),
            f"{1000 * record.round_s:.0f} ms",
            ",".join(map(str, record.late)) or "-",
            str(len(record.received)),
            "-" if record.condition is None else f"{record.condition:.1f}",
            _exactness(record),
        )
        return cells[: len(self.headers)]

    def place(self) -> str:
        """Place of the last return among those of one team; empty if unknown."""
        mean = self._returns.mean
        return "" if mean is None or len(self._sides) > 1 else self.standing.place(mean)

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


def _mean(values: Collection[float]) -> float:
    """Mean of values the sum of which may be no number."""
    return fsum(value / len(values) for value in values)


class _Mean:
    """A running mean as text; ``-`` before its first value."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=SMOOTHED)

    def update(self, value: float | None) -> None:
        """Add a value; None is ignored."""
        if value is not None:
            self._last.append(value)

    @property
    def mean(self) -> float | None:
        """The mean; None before the first value."""
        return _mean(self._last) if self._last else None

    def __bool__(self) -> bool:
        return bool(self._last)

    def __str__(self) -> str:
        return "-" if self.mean is None else decimal(self.mean)

    def whole(self) -> str:
        """Return the mean as a whole number."""
        return "-" if self.mean is None else f"{self.mean:,.0f}"


class TimeLeft:
    """Estimates when a run ends, from its last iterations.

    Args:
        iterations: Number of iterations of the run.

    Attributes:
        iterations: As given; it may be changed.
    """

    def __init__(self, iterations: int) -> None:
        self.iterations, self._left = iterations, iterations
        self._last: deque[float] = deque(maxlen=MEASURED)

    def update(self, record: IterationRecord) -> None:
        """Take an iteration."""
        self._left = self.iterations - record.iteration - 1
        if record.iteration_s is not None:
            self._last.append(record.iteration_s)

    def __str__(self) -> str:
        left_s = self._left * _mean(self._last)
        if not self._last or not self._left or not isfinite(left_s):
            return ""
        minutes, seconds = divmod(round(left_s), 60)
        hours, minutes = divmod(minutes, 60)
        if hours:
            return f"{hours} h {minutes} min left"
        return f"{minutes} min left" if minutes else f"{seconds} s left"


class Lines:
    """Writes records as lines, one every few seconds.

    Args:
        say: Takes a line.
        iterations: Number of iterations of the run.
        clock: Seconds, monotonic.
        coding: True to write the columns of codes, too.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        iterations: int,
        clock: Callable[[], float],
        coding: bool,
    ) -> None:
        self._say, self._clock = say, clock
        self._cells, self._left = Cells(coding=coding), TimeLeft(iterations)
        self._next = 0.0
        self._pending: IterationRecord | None = None

    def write(self, *records: IterationRecord) -> None:
        """Write the last of the records if enough time has passed since the last line."""
        for record in records:
            self._left.update(record)
            self._cells.update(record)
            self._pending = record
        if self._pending is not None and self._clock() >= self._next:
            self.close()
            self._next = self._clock() + LINE_PERIOD_S

    def compare(self, standing: ReferenceReturns) -> None:
        """Compare the returns of the next records with these."""
        self._cells.standing = standing

    def close(self) -> None:
        """Write the last record if it was not written."""
        record, self._pending = self._pending, None
        if record is None:
            return
        _, returned, *cells = self._cells.formatted(record)
        words = [f"iteration {record.iteration + 1}/{self._left.iterations}"]
        words += [f"return {returned}{self._cells.place()}", str(self._cells.standing)]
        words += map(" ".join, zip(self._cells.headers[2:], cells, strict=True))
        words.append(str(self._left))
        self._say("  ".join(filter(None, words)))
