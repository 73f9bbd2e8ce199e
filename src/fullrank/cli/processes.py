"""The services of a local run as child processes, started and stopped together."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fullrank.common.errors import FullrankError, ServiceLost, of_exit_code
from fullrank.config.trust import is_bound
from fullrank.host.process import GRACE_S
from fullrank.host.run_directory import lock_run, withdraw

STOP_ORDER = ("local", "controller", "learner", "collector", "straggler", "replay")
"""The controller first: it checkpoints while replay still answers."""

ANNOUNCED = ("controller", "monitor", "replay", "straggler", "straggler-control")
"""Names under which services of a run announce their addresses."""

PLAYERS = ("local", "controller", "collector")
"""Services that make the environment."""

FULLRANK = ("-m", "fullrank")
"""Python's arguments that run the command line."""

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
