"""A run that begins or goes on, on services of this host or in this process, shown live."""

import time
from itertools import chain
from pathlib import Path

from fullrank.cli.local import run_in_process
from fullrank.cli.processes import Service, ensure_alive, services
from fullrank.cli.progress import ProgressView, view
from fullrank.cli.terminal import Terminal
from fullrank.codes import codes
from fullrank.codes.learner_codes import tolerance_asked_of
from fullrank.config.tree import RunConfig
from fullrank.host.process import interrupting
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.caveats import disputes_of, lasting_caveats
from fullrank.runs.record import METRICS, follow

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
    from fullrank.cli.outcome import outcome  # imports torch, which the services need first

    console.print(f"finished: {config.iterations} iterations in {path}", soft_wrap=True)
    caveats = (f"caveat: {caveat}" for caveat in (*disputes_of(path), *lasting_caveats(path)))
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
