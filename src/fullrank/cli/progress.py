"""Progress of a training run and of shorter work: live in a terminal, plain lines in a pipe."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from statistics import median
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from fullrank.cli.terminal import Terminal
from fullrank.net.status import RunStatus
from fullrank.runs.progress import LINE_PERIOD_S, Cells, Lines, ReferenceReturns, TimeLeft
from fullrank.runs.record import IterationRecord

SHOWN = 10
"""Number of iterations in the live table."""
NUMBER = re.compile(r"[\d,]+")


@contextmanager
def counting(
    doing: str, total: int, things: str, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Show the progress of the body on standard error; in a pipe, a line every few seconds.

    Args:
        doing: The work, a participle.
        total: Number of things to do.
        things: Their noun.
        clock: Seconds, monotonic.

    Yields:
        Takes the number of things done.
    """
    console, said_s = Terminal(stderr=True), clock()
    live = console.status(f"{doing} {things}: 0 of {total}") if console.is_terminal else None

    def tell(done: int) -> None:
        nonlocal said_s
        line = f"{doing} {things}: {done} of {total}"
        if live is not None:
            live.update(line)
        elif clock() >= said_s + LINE_PERIOD_S:
            said_s = clock()
            console.print(line, soft_wrap=True, highlight=False)

    with live or nullcontext():
        yield tell


class ProgressView(Protocol):
    """Display of a run's progress."""

    def say(self, message: str) -> None:
        """Show a message."""

    def show(self, records: Iterable[IterationRecord]) -> None:
        """Show the iterations committed since the last call."""

    def compare(self, standing: ReferenceReturns) -> None:
        """Compare the returns of the next iterations with these."""

    def close(self) -> None:
        """Finish the display."""


def view(console: Terminal, *, iterations: int, coding: bool) -> ProgressView:
    """A live view for a terminal, lines otherwise; of the rounds' codes, too, if asked for."""
    kind = LiveView if console.is_terminal else LineView
    return kind(console, iterations=iterations, coding=coding)


class LineView(Lines):
    """A line every few seconds, for logs and pipes."""

    def __init__(
        self,
        console: Terminal,
        *,
        iterations: int = 0,
        coding: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._print = partial(console.print, highlight=False, soft_wrap=True)
        super().__init__(self._print, iterations=iterations, clock=clock, coding=coding)
        self._said, self._until_s = "", 0.0

    def say(self, message: str) -> None:
        """Print a message that differs from the last one, within seconds by more than numbers."""
        alike = NUMBER.sub("", message) == NUMBER.sub("", self._said)
        if message != self._said and not (alike and self._clock() < self._until_s):
            self._said, self._until_s = message, self._clock() + LINE_PERIOD_S
            self._print(message)

    def show(self, records: Iterable[IterationRecord], now: RunStatus | None = None) -> None:
        """Print the run's message, and a line if enough time has passed since the last one."""
        if now is not None:
            self._left.iterations = now.iterations
            if now.message:
                self.say(now.message)
        self.write(*records)


class LiveView:
    """A progress bar over a table of the last iterations."""

    def __init__(self, console: Terminal, *, iterations: int, coding: bool) -> None:
        self._cells, self._left = Cells(coding=coding), TimeLeft(iterations)
        self._rows: deque[tuple[str, ...]] = deque(maxlen=SHOWN)
        self._rounds: deque[float] = deque(maxlen=100)
        self._message = ""
        self._progress = Progress(
            TextColumn("training"), BarColumn(bar_width=None), MofNCompleteColumn()
        )
        self._task = self._progress.add_task("training", total=iterations)
        self._live = Live(self._draw(), console=console, refresh_per_second=8)
        self._live.start()

    def say(self, message: str) -> None:
        """Show the message above the table."""
        self._message = message
        self._live.update(self._draw())

    def show(self, records: Iterable[IterationRecord]) -> None:
        """Add the iterations to the table."""
        for record in records:
            self._cells.update(record)
            self._rows.append(self._cells.formatted(record))
            self._rounds.append(record.round_s)
            self._left.update(record)
            self._progress.update(self._task, completed=record.iteration + 1)
        self._live.update(self._draw())

    def _draw(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for header in self._cells.headers:
            table.add_column(header, justify="right", style="bold" if header == "return" else "")
        for row in self._rows:
            table.add_row(*row)
        notes = []
        if self._rounds:
            returned = self._rows[-1][1] + self._cells.place()
            notes.append(f"return {returned}  {self._cells.standing}")
            notes.append(f"median round {1000 * median(self._rounds):.0f} ms  {self._left}")
        return Group(self._message, self._progress, table, *notes)

    def compare(self, standing: ReferenceReturns) -> None:
        """Show them below the table."""
        self._cells.standing = standing

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()
