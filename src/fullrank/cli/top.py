"""``fullrank top``: a live view of a run, in a terminal, a pipe, or as JSON."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import mean
from typing import Protocol

import numpy as np
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from fullrank.cli.locate import RunOption, ended, locate
from fullrank.cli.options import CertificatesOption, JsonOption
from fullrank.cli.progress import LineView
from fullrank.cli.say import say
from fullrank.cli.status import headline, players
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import FullrankError, ServiceLost
from fullrank.common.text import decimal, plain
from fullrank.common.types import LearnerId
from fullrank.net.monitor import Monitor
from fullrank.net.status import RunState, RunStatus
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord, to_line
from fullrank.runs.time_budget import spans, spent

WAITING, COMPUTING, DELAYED, SENDING, LATE, DECODABLE = "─", "█", "░", "▸", "·", "│"
LEGEND = (
    f"{WAITING} parameters and minibatch  {COMPUTING} computing  {DELAYED} delayed  {SENDING} "
    f"sending  {LATE} not waited for  {DECODABLE} rank reached M"
)
_MARKS = {
    "assign": WAITING,
    "compute": COMPUTING,
    "delay": DELAYED,
    "transfer": SENDING,
    "late": LATE,
}
_BARS = "▁▂▃▄▅▆▇█"


def lanes(record: IterationRecord, *, width: int) -> dict[LearnerId, str]:
    """Timeline of each learner with an assigned row, to scale in ``width`` characters."""
    scale = width / max(record.round_s, 1e-9)
    return {learner: _lane(record, learner, width, scale) for learner in sorted(record.assigned_s)}


def _lane(record: IterationRecord, learner: LearnerId, width: int, scale: float) -> str:
    cells = [" "] * width
    for phase, start_s, end_s in spans(record, learner):
        first, last = (min(width, int(scale * moment_s)) for moment_s in (start_s, end_s))
        cells[first:last] = [_MARKS[phase]] * (last - first)
    if record.decodable_s is not None:
        cells[min(width - 1, int(scale * record.decodable_s))] = DECODABLE
    return "".join(cells)


def sparkline(values: Sequence[float], *, width: int) -> str:
    """A curve of at most ``width`` characters, each the mean of equally many neighbours."""
    if not values:
        return ""
    parts = np.array_split(np.asarray(values, float), min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    low, high = means.min(), means.max()
    steps = (means - low) / (high - low or 1.0) * (len(_BARS) - 1)
    return "".join(_BARS[int(step)] for step in steps.round())


PERIOD_S = 0.5
"""Period of polls, seconds."""
KEPT = 500
"""Number of iterations that the view covers."""
LANE, CURVE = 50, 60
"""Widths of a learner's lane and of a curve, characters."""
LONGEST_PAUSE_S = 10.0
"""Longest pause between attempts to reach the controller."""


def top(
    run: RunOption = None, certificates: CertificatesOption = None, as_json: JsonOption = False
) -> None:
    """Show a run until it has ended; retry while the controller cannot be reached."""
    follower = Follower(locate(run, certificates), ended=partial(ended, run))
    console = Terminal()
    shown: Shown = Screen(console) if console.is_terminal else Plain(console)
    if as_json:
        shown = Json()
    try:
        for now, new in _poll(follower, shown.say):
            shown.show(now, new)
            if now.state in (RunState.FINISHED, RunState.FAILED):
                return
    finally:
        shown.close()


class Follower:
    """Polls a run and receives each iteration once.

    Args:
        dial: Dials the monitor at its current address.
        ended: Reads the status and the iterations of a run that has ended; None for any other.
    """

    def __init__(
        self,
        dial: Callable[[], Monitor],
        *,
        ended: Callable[[], tuple[RunStatus, list[IterationRecord]] | None] = lambda: None,
    ) -> None:
        self._dial, self._ended = dial, ended
        self._monitor: Monitor | None = None
        self._last: IterationRecord | None = None

    def poll(self) -> tuple[RunStatus, list[IterationRecord]]:
        """The status of the run and the iterations committed since the last poll.

        Raises:
            FullrankError: The controller is away or denies access, or there is no such run.
        """
        try:
            if self._monitor is None:
                self._monitor = self._dial()
            now = self._monitor.status()
            return now, self._new(self._monitor, now)
        except FullrankError as error:
            self.hang_up()
            if not isinstance(error, ServiceLost) or (found := self._ended()) is None:
                raise
            now, records = found
            last = -1 if self._last is None else self._last.iteration
            return now, [record for record in records if record.iteration > last]

    def _new(self, monitor: Monitor, now: RunStatus) -> list[IterationRecord]:
        first, term = max(0, now.committed - KEPT), 0
        if self._last is not None:
            first, term = self._last.iteration + 1, self._last.term
        new = list(monitor.watch(first, seen_term=term, until_now=True))
        self._last = new[-1] if new else self._last
        return new

    def hang_up(self) -> None:
        """Close the connection; the next poll dials again."""
        if self._monitor is not None:
            self._monitor.close()
        self._monitor = None


def _poll(
    follower: Follower, say: Callable[[str], None]
) -> Iterator[tuple[RunStatus, list[IterationRecord]]]:
    """Poll for ever; ``say`` receives the reasons of failed polls."""

    def away(attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        error = attempt.outcome.exception()
        what = "controller away" if isinstance(error, ServiceLost) else "no status"
        say(f"{what}: {error}; retrying")

    patient = Retrying(
        retry=retry_if_exception_type(FullrankError),
        wait=wait_random_exponential(multiplier=PERIOD_S, max=LONGEST_PAUSE_S),
        before_sleep=away,
    )
    try:
        while True:
            yield patient(follower.poll)
            time.sleep(PERIOD_S)
    finally:
        follower.hang_up()


class Shown(Protocol):
    """Output of ``top``."""

    def say(self, message: str) -> None:
        """Show a message."""

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """Show the result of a poll."""

    def close(self) -> None:
        """Finish the output."""


class Json:
    """A line of metrics.jsonl for each iteration; messages go to standard error."""

    def say(self, message: str) -> None:
        """Print the message to standard error."""
        say(message, error=True)

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """Print the iterations."""
        for record in new:
            say(to_line(record))

    def close(self) -> None:
        """Do nothing: every line is printed at once."""


class Plain:
    """A line every few seconds."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._lines: LineView | None = None
        self._said = ""

    def say(self, message: str) -> None:
        """Print the message unless it repeats the last one."""
        if message != self._said:
            self._console.print(message, highlight=False, soft_wrap=True)
        self._said = message

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """Print the run's message, and an iteration if enough time has passed since the last."""
        if now.message:
            self.say(now.message)
        self._lines = self._lines or LineView(self._console, iterations=now.iterations)
        self._lines.show(new)

    def close(self) -> None:
        """Print the last iteration."""
        if self._lines is not None:
            self._lines.close()


class Screen:
    """The full view, drawn again at each poll."""

    def __init__(self, console: Terminal) -> None:
        self._records: deque[IterationRecord] = deque(maxlen=KEPT)
        self._live = Live(Text("looking for the controller"), console=console, auto_refresh=False)
        self._live.start()
        self._picture: RenderableType = ""

    def say(self, message: str) -> None:
        """Show the message above the last view."""
        self._live.update(
            Group(Text(plain(message), style="bold red"), self._picture), refresh=True
        )

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """Draw the view."""
        for record in new:
            while self._records and self._records[-1].iteration >= record.iteration:
                self._records.pop()  # superseded
            self._records.append(record)
        self._picture = picture(now, list(self._records))
        self._live.update(self._picture, refresh=True)

    def close(self) -> None:
        """Leave the last view on the screen."""
        self._live.stop()


def picture(now: RunStatus, records: list[IterationRecord]) -> RenderableType:
    """Headline, learners with timelines of the last round, return curve and time budget."""
    lines = headline(now, records[-SMOOTHED:])
    returns = [record.return_mean for record in records if record.return_mean is not None]
    if returns:
        lines.append(
            f"return {sparkline(returns, width=CURVE)} {decimal(mean(returns[-SMOOTHED:]))}"
        )
    phases = spent(records[-SMOOTHED:])
    if whole := sum(phases.values()):
        lines.append("  ".join(f"{phase} {part / whole:.0%}" for phase, part in phases.items()))
    return Group(
        *(Text(plain(line)) for line in lines),
        _table(now, records),
        *players(now),
        Text(LEGEND, style="dim"),
    )


def _table(now: RunStatus, records: list[IterationRecord]) -> Table:
    last = f"round {records[-1].iteration}" if records else "round"
    table = Table("learner", "host", "row", "state", "late", last, box=None, pad_edge=False)
    drawn = lanes(records[-1], width=LANE) if records else {}
    for learner in now.learners:
        late = sum(learner.learner in record.late for record in records)
        table.add_row(
            str(learner.learner),
            learner.host,
            ",".join(map(str, learner.rows)) or "-",
            learner.activity(now),
            f"{late / len(records):.0%}" if records else "-",
            Text(drawn.get(learner.learner, "")),
        )
    return table
