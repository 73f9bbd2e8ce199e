"""A run that begins or goes on, on services of this host or in this process, shown live."""

import logging
import os
import time
from itertools import chain
from pathlib import Path

from fullrank.cli.processes import Service, ensure_alive, ensure_idle, services
from fullrank.cli.progress import ProgressView, view
from fullrank.cli.say import start_log
from fullrank.cli.serve import find
from fullrank.cli.terminal import Terminal
from fullrank.codes import codes
from fullrank.codes.learner_codes import tolerance_asked_of
from fullrank.config import load
from fullrank.config.tree import RunConfig
from fullrank.host.process import Launch, interrupting
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.ending import lasting_caveats
from fullrank.runs.record import METRICS, IterationRecord, follow

SHOW_S = 0.2
"""Shortest time between two updates of the view."""


def run_in_process(path: Path, config: RunConfig, console: Terminal) -> None:
    """Run, or continue, the run in ``path`` to its end.

    Raises:
        KeyboardInterrupt: It was told to stop; its committed iterations are checkpointed.
        FullrankError: The run failed.
    """
    ensure_idle(path)
    _log_to(path / "logs" / "local.log")
    main = find("local")
    launch = load(path / "config.toml", environ=os.environ, overrides=())
    shown = view(console, iterations=config.iterations)
    try:
        shown.say(f"run {path}")
        shown.say(f"training in {path}")
        code = main(
            Launch(
                resolved=launch,
                run_dir=path,
                until_finished=True,
                observers=[_Batches(shown)],
                report=lambda text: shown.say(text or f"training in {path}"),
            )
        )
        if code:
            shown.say(f"stopped; continue with: fullrank resume --local {path}")
            raise KeyboardInterrupt
    finally:
        shown.close()


def _log_to(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    start_log(logging.FileHandler(path, mode="w", delay=True))


class _Batches:
    """A receiver of records that updates a view a few times a second.

    Args:
        shown: The view.
    """

    def __init__(self, shown: ProgressView) -> None:
        self._shown = shown
        self._pending: list[IterationRecord] = []
        self._shown_at = 0.0

    def write(self, record: IterationRecord) -> None:
        """Show the record, or keep it for the next update."""
        self._pending.append(record)
        if time.monotonic() >= self._shown_at + SHOW_S:
            self.close()

    def close(self) -> None:
        """Show the records that were kept."""
        self._shown.show(self._pending)
        self._pending, self._shown_at = [], time.monotonic()


POLL_S = 0.2
"""Period at which the run is polled."""


def redundancy(config: RunConfig) -> str:
    """One line: learners, how many of them may be late, and how to change that."""
    learners = f"{config.learners} learner{'s' if config.learners > 1 else ''}"
    if config.code.name not in codes or codes.get(config.code.name).tolerating(0) is None:
        return f"{learners}, code {config.code.name}"
    tolerance = tolerance_asked_of(codes.build(config.code.name, **config.code.params))
    if tolerance:
        return f"{learners}, any {tolerance} of which may be late or lost"
    return (
        f"{learners} without redundancy: rounds wait for every one; --set code.tolerance=1 lets "
        "one be late"
    )


def run_to_end(path: Path, config: RunConfig, *, local: bool) -> None:
    """Train the run in ``path`` to its end, and report its outcome."""
    console = Terminal()
    run = run_in_process if local else run_on_services
    run(path, config, console)
    from fullrank.cli.policies import outcome  # imports torch, which the services need first

    console.print(f"finished: {config.iterations} iterations in {path}", soft_wrap=True)
    caveats = (f"caveat: {caveat}" for caveat in lasting_caveats(path))
    for line in chain(caveats, outcome(path, config)):
        console.print(line, soft_wrap=True, highlight=False)


def run_on_services(path: Path, config: RunConfig, console: Terminal) -> None:
    """Train the run in ``path`` to its end on services of this host, and stop them.

    Raises:
        KeyboardInterrupt: It was told to stop; its committed iterations are checkpointed.
        FullrankError: A service ended; the error is its own.
    """
    processes = services(path, learners=config.learners, collectors=config.collectors.count)
    with interrupting(), processes as started, StatusPoller(path, config) as watch:
        shown = view(console, iterations=config.iterations)
        try:
            shown.say(f"run {path}")
            shown.say(redundancy(config))
            _follow(path, shown, watch, started)
        except KeyboardInterrupt:
            shown.say(f"stopping; continue with: fullrank resume {path}")
            raise
        finally:
            shown.close()


def _follow(path: Path, shown: ProgressView, watch: StatusPoller, started: list[Service]) -> None:
    """Show committed iterations until the run is finished.

    Raises:
        FullrankError: A service ended; the error is the service's own.
    """
    records = follow(path / METRICS)
    said = ""
    while True:
        committed = next(records)  # before the status, which then is no older than they are
        status = watch.status()
        if status.state is RunState.FINISHED:
            shown.show([*committed, *next(records)])
            return
        training = f"training in {path}" if status.state is RunState.RUNNING else ""
        message = status.message or training
        if message not in ("", said) and status.state is not RunState.FAILED:
            shown.say(said := message)  # the reason of a failure is the error of its service
        shown.show(committed)
        ensure_alive(started)
        time.sleep(POLL_S)
