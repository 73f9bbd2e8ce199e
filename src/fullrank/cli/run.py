"""``fullrank run``: runs as objects on this host, in containers of Compose, and on Kubernetes."""

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fullrank.cli.objects import RunObject, by_answer, taken
from fullrank.cli.options import (
    CertificatesOption,
    ConfigOption,
    JsonOption,
    LocalOption,
    OnOption,
    RunArgument,
    RunOption,
    SetOption,
    TrustOption,
    UntilEndOption,
    VerboseOption,
    tls_of,
)
from fullrank.cli.places import PLACES, Place, at_once, found, names_of, place_on
from fullrank.cli.progress import LineView
from fullrank.cli.runs import RUNS, adopt, find_run, make_directory, meant, newest_run
from fullrank.cli.say import say
from fullrank.cli.status_view import headline, learners, picture, players
from fullrank.cli.terminal import Terminal
from fullrank.cli.this_host import LOGS, ThisHost, begin
from fullrank.cli.train import continued, costs_of, go_on, of_new_run, write_settings
from fullrank.common.errors import ConfigError, FullrankError, ServiceLost
from fullrank.common.text import plain
from fullrank.config.layers import load
from fullrank.host.certificates import Role
from fullrank.host.run_directory import LOCK, is_address, lock_launch
from fullrank.net.status import RunState, RunStatus, Status
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord, stand, to_line

PERIOD_S = 0.5
"""Period of polls, seconds."""
KEPT = 500
"""Number of iterations that the live view covers."""
LONGEST_PAUSE_S = 10.0
"""Longest pause between attempts to reach the controller."""

app = typer.Typer(no_args_is_help=True)


@app.command()
def submit(
    run: RunArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    on: OnOption = None,
    local: LocalOption = False,
) -> None:
    """Submit a new run, which trains on its own, whatever becomes of this terminal.

    On this host RUN is a new directory below runs/. On Compose it is a project, on Kubernetes the
    instance of an overlay, which --on may name by its file or directory; --config then is the whole
    run.toml of the containers.
    """
    layers = load(config, environ=os.environ, overrides=overrides or (), options={"name": run})
    place = place_on(on or "host")
    if not isinstance(place, ThisHost):
        _refuse(place, {"--set": overrides, "--local": local})
        place.submit(run, config)
    else:
        if (path := RUNS / run).exists():
            raise taken(run, place.name)
        sized = of_new_run(layers, local=local)
        for line in costs_of(sized):
            say(line)
        make_directory(path, exist_ok=False)
        try:
            write_settings(path, sized.config)
        except OSError:
            shutil.rmtree(path)
            raise
        begin(path, local=local)
    say(f"submitted; `fullrank run status {run}` shows it, `fullrank run stop {run}` stops it")


@app.command("list")
def list_runs(on: OnOption = None, as_json: JsonOption = False) -> None:
    """List the runs of this host, and those of Compose and Kubernetes where these answer."""
    places = list(PLACES.values()) if on is None else [place_on(on)]
    named = names_of(places, needed=on is not None)
    wanted = [(place, name) for place, names in named for name in names]
    runs = list[RunObject]()
    for (_, name), run in at_once(lambda each: each[0].look(each[1]), wanted):
        if isinstance(run, RunObject):
            runs.append(run)
        else:  # its files cannot be read
            say(f"{name}: {run}", error=True)
    if as_json:
        say(json.dumps([each._asdict() for each in runs]))
        return
    table = Table("run", "on", "state", "reason", "results", box=None)
    for each in runs:
        table.add_row(each.name, each.on, each.state, each.why(), each.results)
    Terminal().print(table)


@app.command()
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


@app.command()
def logs(run: RunArgument, on: OnOption = None, follow: UntilEndOption = False) -> None:
    """Print the log of a run's controller."""
    place, name = found(run, on)
    place.logs(name, follow=follow)


@app.command()
def stop(run: RunArgument, on: OnOption = None, certificates: CertificatesOption = None) -> None:
    """Stop a run, as by SIGTERM: finish the update, checkpoint, end; `run resume` goes on.

    Of RUN host:port of a controller, that one is ordered to stop, as by an administrator.
    """
    if is_address(run):
        order(run, "stop", certificates)
    else:
        place, name = found(run, on)
        say(place.stop(name))


@app.command()
def resume(
    run: RunArgument,
    on: OnOption = None,
    attach: Annotated[
        bool,
        typer.Option("--attach", help="Train in this terminal to the end; Ctrl-C stops the run."),
    ] = False,
    local: LocalOption = False,
    trust: TrustOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a run again, which goes on from its newest checkpoint or its store.

    Like a submitted run it trains on its own; with --attach it is shown live.
    """
    place, name = found(run, on)
    if not isinstance(place, ThisHost):
        _refuse(place, {"--attach": attach, "--local": local, "--trust": trust})
        place.resume(name)
    elif attach:
        go_on(find_run(name), local=local, trust=trust or (), verbose=verbose)
        return
    else:
        continued(path := find_run(name), trust or ())
        with lock_launch(path):
            adopt(path)
        begin(path, local=local, trust=trust or ())
    say(f"resumed; `fullrank run status {name}` shows it, `fullrank run stop {name}` stops it")


@app.command()
def order(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Directory, or host:port of the controller.")
    ],
    order: Annotated[str, typer.Argument(help="checkpoint, drain=LEARNER or iterations=NUMBER.")],
    certificates: CertificatesOption = None,
) -> None:
    """Give a controller an order of an administrator."""
    from fullrank.net.controller_client import give_order  # imports gRPC
    from fullrank.net.monitor import monitor_of

    tls = tls_of(certificates)
    address, security = monitor_of(meant(run), tls, port="controller", role=Role.ADMIN)
    say(give_order(address, order, security=security))


def _refuse(place: Place, options: dict[str, object]) -> None:
    """Refuse options of this host for a run elsewhere.

    Raises:
        ConfigError: One of them was given.
    """
    if given := [name for name, value in options.items() if value]:
        what = (
            f"{given[0]} is for runs of this host, and containers have their settings in --config"
        )
        raise ConfigError(f"{what}: drop it, or --on {place.name}")


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
    with closing(shown):
        for now, new in polled(run, certificates, shown.say):
            shown.show(new, now)
            if now.state in (RunState.FINISHED, RunState.FAILED):
                return


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

    pause_s, following, term, polled_run = PERIOD_S, 0, 0, ""
    while True:
        try:
            with dial(run, certificates) as monitor:
                while True:
                    now = monitor.status()
                    if now.run != polled_run:  # at first, and if another takes its place
                        following, term, polled_run = 0, 0, now.run
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
                if now.run != polled_run:
                    following, term = 0, 0
                yield now, [r for r in records if r.iteration >= following or r.term > term]
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
        self._run, self._records = "", deque[IterationRecord](maxlen=KEPT)
        self._live = Live(Text("looking for the controller"), console=console, auto_refresh=False)
        self._live.start()
        self._picture: RenderableType = ""

    def say(self, message: str) -> None:
        """Show the message above the last view."""
        self._live.update(
            Group(Text(plain(message), style="bold red"), self._picture), refresh=True
        )

    def show(self, new: list[IterationRecord], now: RunStatus) -> None:
        """Draw the view, anew for another run."""
        if now.run != self._run:
            self._run = now.run
            self._records.clear()
        for record in new:
            stand(self._records, record)
        self._picture = picture(Status(now=now, records=list(self._records)))
        self._live.update(self._picture, refresh=True)

    def close(self) -> None:
        """Leave the last view on the screen."""
        self._live.stop()
