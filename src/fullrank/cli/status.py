"""``fullrank run status``: the state of a run, once or live, in a terminal, a pipe, or as JSON."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from fullrank.cli.objects import LOGS, ThisHost, condition_of
from fullrank.cli.options import CertificatesOption, JsonOption, OnOption, RunOption, UntilEndOption
from fullrank.cli.places import found
from fullrank.cli.progress import LineView
from fullrank.cli.runs import newest_run
from fullrank.cli.say import say
from fullrank.cli.status_view import headline, learners, picture, players
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import ConfigError, FullrankError, ServiceLost
from fullrank.common.text import plain
from fullrank.host.run_directory import LOCK, is_address
from fullrank.net.status import RunState, RunStatus, Status
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord, stand, to_line

if TYPE_CHECKING:
    from fullrank.net.monitor import Monitor  # imports gRPC

PERIOD_S = 0.5
"""Period of polls, seconds."""
KEPT = 500
"""Number of iterations that the live view covers."""
LONGEST_PAUSE_S = 10.0
"""Longest pause between attempts to reach the controller."""


def status(
    run: RunOption = None,
    on: OnOption = None,
    follow: UntilEndOption = False,
    certificates: CertificatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a run's state, its progress, its learners and its time budget.

    With --follow it is shown live, also while its controller is away; with --json then a line for
    each committed iteration. A run in containers tells more to its monitor's address.
    """
    if run is not None and is_address(run):
        place, name = None, run
    else:
        place, name = found(run or str(newest_run()), on)
    if follow:
        if not (place is None or isinstance(place, ThisHost)):
            raise ConfigError(f"not of this host: `fullrank run logs {name} --follow` follows it")
        _follow(name, certificates, as_json=as_json)
        return
    found_run = None if place is None else place.look(name)
    now = None
    if place is None or isinstance(place, ThisHost):
        try:
            now = _look(name, certificates)
        except ServiceLost:
            if found_run is None:
                raise
    if as_json:
        facts = {} if now is None else now.facts() | condition_of(now.now)._asdict()
        say(json.dumps(facts | ({} if found_run is None else asdict(found_run))))
        return
    if found_run is not None:
        shown = found_run if now is None else replace(found_run, reason="", exit_code=None)
        say(str(shown), f"results: {found_run.results}")
    if now is None:
        return
    console = Terminal()
    for line in headline(now):
        console.print(line, highlight=False, soft_wrap=True)
    for table in (learners(now.now), *players(now.now)):
        console.print(table)


def _look(run: str, certificates: Path | None) -> Status:
    """The status of a run, from its directory once it has ended."""
    from fullrank.cli.locate import ended, locate  # imports gRPC

    try:
        with locate(run, certificates)() as monitor:
            now = monitor.status()
            first = max(0, now.committed - SMOOTHED)
            return Status(now=now, records=list(monitor.watch(first, until_now=True)))
    except ServiceLost:
        if (found := ended(run)) is None:
            raise
        now, records = found
        return Status(now=now, records=records[-SMOOTHED:])


def _follow(run: str, certificates: Path | None, *, as_json: bool) -> None:
    """Show a run until it has ended; retry while the controller cannot be reached."""
    from fullrank.cli.locate import ended, locate  # imports gRPC

    follower = Follower(locate(run, certificates), ended=partial(ended, run))
    console = Terminal()
    shown: Shown = Screen(console) if console.is_terminal else Plain(console)
    if as_json:
        shown = Json()
    try:
        for now, new in _poll(follower, shown.say, end=partial(_end_of, run)):
            shown.show(now, new)
            if now.state in (RunState.FINISHED, RunState.FAILED):
                return
    finally:
        shown.close()


def _end_of(run: str) -> str:
    """How a command has ended that trained a run of this host; empty before, and of services."""
    with suppress(FullrankError):
        found = ThisHost().look(run)
        trained = (Path(found.results) / LOGS / LOCK).exists()
        return str(found) if trained and found.exit_code is not None else ""
    return ""


class Follower:
    """Polls a run and receives each iteration once.

    Args:
        dial: Dials the monitor at its current address.
        ended: Reads the status and the iterations of a run that has ended; None for any other.
    """

    def __init__(
        self,
        dial: "Callable[[], Monitor]",
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

    def _new(self, monitor: "Monitor", now: RunStatus) -> list[IterationRecord]:
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
    follower: Follower, say: Callable[[str], None], *, end: Callable[[], str] = str
) -> Iterator[tuple[RunStatus, list[IterationRecord]]]:
    """Poll until the run has ended; ``say`` receives the reasons of failed polls."""
    pause_s = PERIOD_S
    try:
        while True:
            try:
                polled = follower.poll()
            except FullrankError as error:
                if ended := end():
                    say(ended)
                    return
                what = "controller away" if isinstance(error, ServiceLost) else "no status"
                say(f"{what}: {error}; retrying")
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                yield polled
                pause_s = PERIOD_S
            time.sleep(pause_s)
    finally:
        follower.hang_up()


class Shown(Protocol):
    """Output of ``status --follow``."""

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
            stand(self._records, record)
        self._picture = picture(Status(now=now, records=list(self._records)))
        self._live.update(self._picture, refresh=True)

    def close(self) -> None:
        """Leave the last view on the screen."""
        self._live.stop()
