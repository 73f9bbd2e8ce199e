"""``fullrank top``: a run while it goes on, in a terminal, a pipe, or as JSON."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from statistics import mean
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from fullrank.cli.lanes import LEGEND, lanes, sparkline
from fullrank.cli.locate import RunOption, locate
from fullrank.cli.options import CertificatesOption, JsonOption
from fullrank.cli.progress import LineView
from fullrank.cli.status import headline
from fullrank.common.errors import FullrankError, ServiceLost
from fullrank.rpc.monitor import Monitor
from fullrank.rpc.seen import RunState, RunStatus
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord, to_line
from fullrank.runs.time_budget import spent

PERIOD_S = 0.5
"""Time between two looks."""
KEPT = 500
"""Iterations that the picture is of."""
LANE, CURVE = 50, 60
"""Widths, characters."""
LONGEST_PAUSE_S = 10.0
"""Between two attempts to reach a controller that is away."""


def top(
    run: RunOption = None, certificates: CertificatesOption = None, as_json: JsonOption = False
) -> None:
    """Show a run until it is finished; what cannot be seen, and why, is said and tried again."""
    follower = Follower(locate(run, certificates))
    console = Console()
    shown: Shown = Screen(console) if console.is_terminal else Plain(console)
    if as_json:
        shown = Json()
    try:
        for now, new in _looks(follower, shown.say):
            shown.show(now, new)
            if now.state is RunState.FINISHED:
                return
    finally:
        shown.close()


class Follower:
    """Looks at a run again and again, and gets each iteration once.

    Args:
        dial: Dials the monitor where it listens now.
    """

    def __init__(self, dial: Callable[[], Monitor]) -> None:
        self._dial = dial
        self._monitor: Monitor | None = None
        self._last: IterationRecord | None = None

    def look(self) -> tuple[RunStatus, list[IterationRecord]]:
        """Where the run stands, and what was committed since the last look.

        Raises:
            FullrankError: The controller is away, or does not let us in, or there is no such run.
        """
        try:
            if self._monitor is None:
                self._monitor = self._dial()
            now = self._monitor.status()
            return now, self._new(self._monitor, now)
        except FullrankError:
            self.hang_up()
            raise

    def _new(self, monitor: Monitor, now: RunStatus) -> list[IterationRecord]:
        first, term = max(0, now.committed - KEPT), 0
        if self._last is not None:
            first, term = self._last.iteration + 1, self._last.term
        new = list(monitor.watch(first, seen_term=term, until_now=True))
        self._last = new[-1] if new else self._last
        return new

    def hang_up(self) -> None:
        """Dial again at the next look."""
        if self._monitor is not None:
            self._monitor.close()
        self._monitor = None


def _looks(
    follower: Follower, say: Callable[[str], None]
) -> Iterator[tuple[RunStatus, list[IterationRecord]]]:
    """For ever; ``say`` hears why nothing is seen."""

    def away(attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        error = attempt.outcome.exception()
        what = "controller away" if isinstance(error, ServiceLost) else "nothing to see"
        say(f"{what}: {error}; trying again")

    patient = Retrying(
        retry=retry_if_exception_type(FullrankError),
        wait=wait_random_exponential(multiplier=PERIOD_S, max=LONGEST_PAUSE_S),
        before_sleep=away,
    )
    try:
        while True:
            yield patient(follower.look)
            time.sleep(PERIOD_S)
    finally:
        follower.hang_up()


class Shown(Protocol):
    """Takes what is seen."""

    def say(self, message: str) -> None:
        """That there is nothing to see."""

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """A look."""

    def close(self) -> None:
        """The end."""


class Json:
    """A line of metrics.jsonl for each iteration; what else there is to say goes to stderr."""

    def say(self, message: str) -> None:
        """Print it where it does not disturb."""
        print(message, file=sys.stderr)

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """Print the iterations."""
        for record in new:
            print(to_line(record), flush=True)

    def close(self) -> None:
        """Nothing is left to print."""


class Plain:
    """Lines, one every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: LineView | None = None
        self._said = ""

    def say(self, message: str) -> None:
        """Print what was not said just now."""
        if message != self._said:
            self._console.print(message, highlight=False, soft_wrap=True)
        self._said = message

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """Print what the run waits for, and an iteration if the last line is old enough."""
        if now.message:
            self.say(now.message)
        self._lines = self._lines or LineView(self._console, iterations=now.iterations)
        self._lines.show(new)

    def close(self) -> None:
        """Print the last iteration."""
        if self._lines is not None:
            self._lines.close()


class Screen:
    """The whole picture, drawn anew at each look."""

    def __init__(self, console: Console) -> None:
        self._records: deque[IterationRecord] = deque(maxlen=KEPT)
        self._live = Live(Text("looking for the controller"), console=console, auto_refresh=False)
        self._live.start()
        self._picture: RenderableType = ""

    def say(self, message: str) -> None:
        """Show it above what was seen last."""
        self._live.update(Group(Text(message, style="bold red"), self._picture), refresh=True)

    def show(self, now: RunStatus, new: list[IterationRecord]) -> None:
        """Draw."""
        for record in new:
            while self._records and self._records[-1].iteration >= record.iteration:
                self._records.pop()  # superseded
            self._records.append(record)
        self._picture = picture(now, list(self._records))
        self._live.update(self._picture, refresh=True)

    def close(self) -> None:
        """Leave the last picture."""
        self._live.stop()


def picture(now: RunStatus, records: list[IterationRecord]) -> RenderableType:
    """Headline, learners with their lanes of the last round, the curve and the time budget."""
    lines = headline(now, records[-SMOOTHED:])
    returns = [each.return_mean for each in records if each.return_mean is not None]
    if returns:
        lines.append(f"return {sparkline(returns, width=CURVE)} {mean(returns[-SMOOTHED:]):.1f}")
    phases = spent(records[-SMOOTHED:])
    if whole := sum(phases.values()):
        lines.append("  ".join(f"{phase} {part / whole:.0%}" for phase, part in phases.items()))
    return Group(*map(Text, lines), _table(now, records), Text(LEGEND, style="dim"))


def _table(now: RunStatus, records: list[IterationRecord]) -> Table:
    last = f"round {records[-1].iteration}" if records else "round"
    table = Table("learner", "host", "row", "state", "late", last, box=None, pad_edge=False)
    drawn = lanes(records[-1], width=LANE) if records else {}
    for each in now.learners:
        late = sum(each.learner in record.late for record in records)
        table.add_row(
            str(each.learner),
            each.host,
            ",".join(map(str, each.rows)) or "-",
            each.activity(now),
            f"{late / len(records):.0%}" if records else "-",
            Text(drawn.get(each.learner, "")),
        )
    return table
