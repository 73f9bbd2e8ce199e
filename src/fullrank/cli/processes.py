"""A run on services of this host, child processes that start and stop together, or in this process.

A run that begins or goes on is shown live.
"""

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from fullrank.cli.beside import Beside
from fullrank.cli.progress import ProgressView, view
from fullrank.cli.say import LOG_FORMAT, start_log
from fullrank.cli.terminal import Terminal
from fullrank.codes import codes
from fullrank.codes.learner_codes import tolerance_asked_of
from fullrank.common.errors import FullrankError, ServiceLost, of_exit_code
from fullrank.config import load
from fullrank.config.tree import RunConfig
from fullrank.config.trust import is_bound
from fullrank.host.process import GRACE_S, Launch, find_service, interrupting
from fullrank.host.run_directory import lock_run, withdraw
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.ending import lasting_caveats
from fullrank.runs.record import METRICS, IterationRecord, follow

STOP_ORDER = ("local", "controller", "learner", "collector", "straggler", "replay")
"""The controller first: it checkpoints while replay still answers."""

ANNOUNCED = ("controller", "monitor", "replay", "straggler", "straggler-control")
"""Names under which services of a run announce their addresses."""

PLAYERS = ("local", "controller", "collector")
"""Services that make the environment."""

FULLRANK = ("-m", "fullrank")
"""Python's arguments that run the command line."""

SHOW_S, POLL_S = 0.2, 0.2
"""Shortest time between two updates of the view, and period at which the run is polled."""

FULL_BYTES = 2**20
"""Free space below which a disk counts as full: a process that ends may leave a little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One child process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    stdin: IO[bytes]

    def failure(self) -> FullrankError | None:
        """Why the process ended: its own last error if it printed one; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        words = [
            line.removeprefix("fullrank: ").rstrip()
            for line in self.log.read_text(errors="replace").splitlines(keepends=True)
            if line.startswith("fullrank: ") and line.endswith("\n")
        ]
        if words:
            return of_exit_code(code, words[-1])
        full = shutil.disk_usage(self.log).free < FULL_BYTES  # the log lacks the error, too
        reason = f": {os.strerror(errno.ENOSPC)}" if full else ""
        return ServiceLost(f"the {self.name} ended with status {code}{reason}; see {self.log}")


@contextmanager
def services(run_dir: Path, *, learners: int, collectors: int = 0) -> Iterator[list[Service]]:
    """Start replay, controller, learners and collectors of a run; stop them at the end.

    Each process has the run directory on its command line, writes to ``<run>/logs/``, runs in a
    session of its own (Ctrl-C reaches only this process) and stops if this process dies.

    Raises:
        RunDirectoryInUse: The run has a controller already.
    """
    ensure_idle(run_dir)
    (run_dir / "logs").mkdir(exist_ok=True)
    started: list[Service] = []
    try:
        replicas = {"learner": learners, "collector": collectors}
        for name in ("learner", "controller", "replay", "collector"):
            if not replicas.get(name, 1):
                continue
            extra = ["--replicas", str(replicas[name])] if name in replicas else []
            started.append(start(name, run_dir, extra))
        yield started
    finally:
        stop(started)
        _withdraw_all(run_dir)  # of those that had to be killed


def ensure_idle(run_dir: Path) -> None:
    """Refuse a run that has a controller; withdraw addresses that a killed one announced."""
    lock_run(run_dir).close()
    _withdraw_all(run_dir)


def _withdraw_all(run_dir: Path) -> None:
    for name in ANNOUNCED:
        withdraw(run_dir, name)


def start(
    name: str,
    run_dir: Path,
    extra: Sequence[str] = (),
    *,
    log_name: str = "",
    program: Sequence[str] = FULLRANK,
) -> Service:
    """Start one service of the run in ``run_dir``, with a log file of its own.

    Args:
        name: Name of the service.
        run_dir: Directory of the run, with its configuration.
        extra: Further arguments of ``fullrank serve``.
        log_name: Name of the log; default: the service's name.
        program: Python's arguments that run ``serve``.
    """
    log = run_dir / "logs" / f"{log_name or name}.log"
    # -P: no module of the working directory, which may be a stranger's, takes the place of another.
    command = [sys.executable, "-P", *program, "serve", name, "--run-dir", str(run_dir)]
    command += ["--config", str(run_dir / "config.toml"), "--stop-with-stdin", *extra]
    if name in PLAYERS and is_bound():
        command.append("--remembered")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {LOG_FORMAT: "text"},  # ``Service.failure`` reads it
        )
    assert process.stdin is not None
    return Service(name=name, process=process, log=log, stdin=process.stdin)


def ensure_alive(started: Iterable[Service]) -> None:
    """Check that every service still runs.

    Raises:
        FullrankError: A service ended; the error is its own.
    """
    for service in started:
        if (failure := service.failure()) is not None:
            raise failure


def stop(started: list[Service]) -> None:
    """Stop the services in order; kill those that do not drain in time."""
    for service in sorted(started, key=lambda service: STOP_ORDER.index(service.name)):
        service.stdin.close()
        if service.process.poll() is None:
            service.process.terminate()
        try:
            service.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(service.process.pid, signal.SIGKILL)  # with the replicas that it supervises
            service.process.wait()


def run_in_process(path: Path, config: RunConfig, console: Terminal, coding: bool) -> None:
    """Run, or continue, the run in ``path`` to its end.

    Raises:
        KeyboardInterrupt: It was told to stop; its committed iterations are checkpointed.
        FullrankError: The run failed.
    """
    ensure_idle(path)
    (path / "logs").mkdir(exist_ok=True)
    start_log(logging.FileHandler(path / "logs" / "local.log", mode="w", delay=True))
    main = find_service("local")
    launch = load(path / "config.toml", environ=os.environ, overrides=())
    shown = view(console, iterations=config.iterations, coding=coding)
    beside = Beside(path, config, shown, inside=True)
    try:
        shown.say(f"run {path}")
        shown.say(f"training in {path}")
        code = main(
            Launch(
                resolved=launch,
                run_dir=path,
                until_finished=True,
                observers=[_Batches(shown, beside)],
                report=lambda text: shown.say(text or f"training in {path}"),
            )
        )
        if code:
            shown.say(f"stopped; continue with: fullrank run resume --local {path}")
            raise KeyboardInterrupt
    finally:
        beside.close()
        shown.close()


class _Batches:
    """A receiver of records that updates a view a few times a second.

    Args:
        shown: The view.
        beside: Plays once there is a return.
    """

    def __init__(self, shown: ProgressView, beside: Beside) -> None:
        self._shown, self._beside = shown, beside
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
        self._beside.seen(self._pending)
        self._pending, self._shown_at = [], time.monotonic()


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


def run_to_end(path: Path, config: RunConfig, *, local: bool, coding: bool) -> None:
    """Train the run in ``path`` to its end, and report its outcome.

    Args:
        path: Directory of the run.
        config: Its configuration.
        local: True to train in this process.
        coding: True to show the codes of its rounds.
    """
    console = Terminal()
    run = run_in_process if local else run_on_services
    run(path, config, console, coding)
    from fullrank.cli.policies import outcome  # imports torch, which the services need first

    console.print(f"finished: {config.iterations} iterations in {path}", soft_wrap=True)
    caveats = (f"caveat: {caveat}" for caveat in lasting_caveats(path))
    for line in chain(caveats, outcome(path, config)):
        console.print(line, soft_wrap=True, highlight=False)


def run_on_services(path: Path, config: RunConfig, console: Terminal, coding: bool) -> None:
    """Train the run in ``path`` to its end on services of this host, and stop them.

    Raises:
        KeyboardInterrupt: It was told to stop; its committed iterations are checkpointed.
        FullrankError: A service ended; the error is its own.
    """
    processes = services(path, learners=config.learners, collectors=config.collectors.count)
    with interrupting(), processes as started, StatusPoller(path, config) as watch:
        shown = view(console, iterations=config.iterations, coding=coding)
        beside = Beside(path, config, shown)
        try:
            shown.say(f"run {path}")
            shown.say(redundancy(config))
            _follow(path, shown, beside, watch, started)
        except KeyboardInterrupt:
            shown.say(f"stopping; continue with: fullrank run resume {path}")
            raise
        finally:
            beside.close()
            shown.close()


def _follow(
    path: Path,
    shown: ProgressView,
    beside: Beside,
    watch: StatusPoller,
    started: list[Service],
) -> None:
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
        beside.seen(committed)
        ensure_alive(started)
        time.sleep(POLL_S)
