"""What a person sees while a run trains: a live panel in a terminal, plain lines in a pipe."""

import time
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fullrank.metrics import IterationRecord

SHOWN = 10
"""Iterations shown in the live table."""
LINE_PERIOD_S = 5.0
"""Least time between two plain lines."""
SMOOTHED = 20
"""Iterations that the return is averaged over."""


class View(Protocol):
    """Takes what happens."""

    def say(self, message: str) -> None:
        """Something that is not an iteration."""

    def show(self, records: Iterable[IterationRecord]) -> None:
        """Iterations committed since the last call."""

    def close(self) -> None:
        """The end."""


def view(console: Console, *, iterations: int) -> View:
    """The view that fits where the output goes."""
    if console.is_terminal:
        return LiveView(console, iterations=iterations)
    return LineView(console, iterations=iterations)


def _cells(record: IterationRecord, mean: float | None) -> tuple[str, ...]:
    late = ",".join(str(learner) for learner in record.late) or "-"
    kappa = "-" if record.condition is None else f"{record.condition:.1f}"
    return (
        str(record.iteration),
        "-" if mean is None else f"{mean:.1f}",
        f"{1000 * record.round_s:.0f} ms",
        str(len(record.received)),
        late,
        kappa,
        "yes" if record.exact else f"±{record.error_bound or 0.0:.0e}",
    )


HEADERS = ("iteration", "return", "round", "|J|", "late", "kappa", "exact")


class _Returns:
    """Running mean of the returns."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=SMOOTHED)

    def mean(self, record: IterationRecord) -> float | None:
        """Mean over the last iterations in which an episode ended."""
        if record.return_mean is not None:
            self._last.append(record.return_mean)
        return sum(self._last) / len(self._last) if self._last else None


class LineView:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, console: Console, *, iterations: int) -> None:
        self._console = console
        self._iterations = iterations
        self._returns = _Returns()
        self._next = 0.0
        self._pending: str | None = None

    def say(self, message: str) -> None:
        """Print it."""
        self._console.print(message, highlight=False, soft_wrap=True)

    def show(self, records: Iterable[IterationRecord]) -> None:
        """Print the newest record if the last line is old enough."""
        for record in records:
            cells = _cells(record, self._returns.mean(record))
            pairs = zip(HEADERS[1:], cells[1:], strict=True)
            text = "  ".join(f"{name} {cell}" for name, cell in pairs)
            self._pending = f"iteration {record.iteration + 1}/{self._iterations}  {text}"
        if self._pending and time.monotonic() >= self._next:
            self._flush()
            self._next = time.monotonic() + LINE_PERIOD_S

    def _flush(self) -> None:
        if self._pending:
            self.say(self._pending)
        self._pending = None

    def close(self) -> None:
        """Print the last record."""
        self._flush()


class LiveView:
    """A progress bar over a table of the last iterations."""

    def __init__(self, console: Console, *, iterations: int) -> None:
        self._returns = _Returns()
        self._rows: deque[tuple[str, ...]] = deque(maxlen=SHOWN)
        self._rounds: deque[float] = deque(maxlen=100)
        self._message = ""
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("training", total=iterations)
        self._live = Live(self._draw(), console=console, refresh_per_second=8)
        self._live.start()

    def say(self, message: str) -> None:
        """Show it above the table."""
        self._message = message
        self._live.update(self._draw())

    def show(self, records: Iterable[IterationRecord]) -> None:
        """Add rows."""
        for record in records:
            self._rows.append(_cells(record, self._returns.mean(record)))
            self._rounds.append(record.round_s)
            self._progress.update(self._task, completed=record.iteration + 1)
        self._live.update(self._draw())

    def _draw(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for header in HEADERS:
            table.add_column(header, justify="right", style="bold" if header == "return" else "")
        for row in self._rows:
            table.add_row(*row)
        note = f"median round {1000 * median(self._rounds):.0f} ms" if self._rounds else ""
        return Group(self._message, self._progress, table, note)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()
