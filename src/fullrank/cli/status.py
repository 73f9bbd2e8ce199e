"""``fullrank run status``: the state of a run, once or live, in a terminal, a pipe, or as JSON."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from fullrank.cli.objects import by_answer
from fullrank.cli.options import CertificatesOption, JsonOption, OnOption, RunOption, UntilEndOption
from fullrank.cli.places import found
from fullrank.cli.progress import LineView
from fullrank.cli.runs import newest_run
from fullrank.cli.say import say
from fullrank.cli.status_view import headline, learners, picture, players
from fullrank.cli.terminal import Terminal
from fullrank.cli.this_host import LOGS, ThisHost
from fullrank.common.errors import ConfigError, FullrankError, ServiceLost
from fullrank.common.text import plain
from fullrank.host.run_directory import LOCK, is_address
from fullrank.net.status import RunState, RunStatus, Status
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord, stand, to_line

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
    now, run_object = None, None if place is None else place.look(name)
    if place is None or isinstance(place, ThisHost):
        try:
            now = _look(name, certificates)
        except ServiceLost:
            if run_object is None:
                raise
    if as_json:
        facts = {} if now is None else now.facts() | by_answer(now.now)._asdict()
        say(json.dumps(facts | ({} if run_object is None else run_object._asdict())))
        return
    if run_object is not None:
        shown = run_object if now is None else run_object._replace(reason="", exit_code=None)
        say(str(shown), f"results: {run_object.results}")
    if now is None:
        return
    console = Terminal()
    for line in headline(now):
        console.print(line, highlight=False, soft_wrap=True)
    for table in (learners(now), *players(now.now)):
        console.print(table)


def _look(run: str, certificates: Path | None) -> Status:
    """The status of a run, from its directory once it has ended."""
    from fullrank.cli.locate import dial, ended  # imports gRPC

    try:
        with dial(run, certificates) as monitor:
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
    console = Terminal()
    shown: Json | Screen | LineView = Screen(console) if console.is_terminal else LineView(console)
    if as_json:
        shown = Json()
    try:
        for now, new in polled(run, certificates, shown.say):
            shown.show(new, now)
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


def polled(
    run: str, certificates: Path | None, say: Callable[[str], None]
) -> Iterator[tuple[RunStatus, list[IterationRecord]]]:
    """Poll a run until it has ended, and yield its status and each iteration once.

    Args:
        run: The run.
        certificates: As of ``dial``, by which the monitor is reached at its current address.
        say: Takes the reasons of failed polls, and how a run has ended that says no more.
    """
    from fullrank.cli.locate import dial, ended  # imports gRPC

    pause_s, following, term = PERIOD_S, 0, 0
    while True:
        try:
            with dial(run, certificates) as monitor:
                while True:
                    now = monitor.status()
                    first = following if term else max(0, now.committed - KEPT)
                    new = list(monitor.watch(first, seen_term=term, until_now=True))
                    if new:
                        following, term = new[-1].iteration + 1, new[-1].term
                    yield now, new
                    pause_s = PERIOD_S
                    time.sleep(pause_s)
        except ConfigError:
            raise
        except FullrankError as error:
            if isinstance(error, ServiceLost) and (found := ended(run)) is not None:
                now, records = found
                yield now, [record for record in records if record.iteration >= following]
                return
            if end := _end_of(run):
                say(end)
                return
            away = "controller away" if isinstance(error, ServiceLost) else "no status"
            say(f"{away}: {error}; retrying")
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        time.sleep(pause_s)


class Json:
    """A line of metrics.jsonl for each iteration; messages go to standard error."""

    def say(self, message: str) -> None:
        """Print the message to standard error."""
        say(message, error=True)

    def show(self, new: list[IterationRecord], now: RunStatus) -> None:
        """Print the iterations."""
        for record in new:
            say(to_line(record))

    def close(self) -> None:
        """Do nothing: every line is printed at once."""


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

    def show(self, new: list[IterationRecord], now: RunStatus) -> None:
        """Draw the view."""
        for record in new:
            stand(self._records, record)
        self._picture = picture(Status(now=now, records=list(self._records)))
        self._live.update(self._picture, refresh=True)

    def close(self) -> None:
        """Leave the last view on the screen."""
        self._live.stop()
