"""The services of a local run as child processes: started together, watched, none left behind."""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from fullrank.common.errors import FullrankError, ServiceLost
from fullrank.rpc.addresses import withdraw
from fullrank.rpc.lock import lock_run

STOP_S = 15.0
"""Grace for a service to checkpoint and drain before it is killed."""

STOP_ORDER = ("controller", "learner", "straggler", "replay")
"""The controller first: it checkpoints while replay still answers."""

_PASSED_ON = MappingProxyType(
    {error.exit_code: error for error in FullrankError.__subclasses__() if error.exit_code > 1}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One child process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    stdin: IO[bytes]

    def failure(self) -> FullrankError | None:
        """Why it ended, if it ended; its own last words where it had some."""
        code = self.process.poll()
        if code is None:
            return None
        words = [
            line.removeprefix("fullrank: ")
            for line in self.log.read_text(errors="replace").splitlines()
            if line.startswith("fullrank: ")
        ]
        if words:
            return _PASSED_ON.get(code, ServiceLost)(words[-1])
        return ServiceLost(f"the {self.name} ended with status {code}; see {self.log}")


@contextmanager
def services(run_dir: Path, *, learners: int) -> Iterator[list[Service]]:
    """Replay, controller and learners of the run in ``run_dir``; all are stopped at the end.

    Each carries the run directory on its command line, writes to ``<run>/logs/``, runs in a session
    of its own (so Ctrl-C reaches only this process) and stops by itself if this process dies.

    Raises:
        RunDirectoryInUse: The run has a controller already.
    """
    _ensure_idle(run_dir)
    (run_dir / "logs").mkdir(exist_ok=True)
    started: list[Service] = []
    try:
        for name, extra in (
            ("learner", ["--replicas", str(learners)]),
            ("controller", []),
            ("replay", []),
        ):
            started.append(start(name, run_dir, extra))
        yield started
    finally:
        stop(started)


def _ensure_idle(run_dir: Path) -> None:
    """Refuse a run that has a controller; forget where those of a killed one listened."""
    if (run_dir / "lock").exists():
        lock_run(run_dir).close()
    for name in STOP_ORDER:
        withdraw(run_dir, name)


def start(name: str, run_dir: Path, extra: Sequence[str] = (), *, log_name: str = "") -> Service:
    """Start one service of the run in ``run_dir``, which writes to a log of its own.

    Args:
        name: The service.
        run_dir: The run's, with its configuration.
        extra: Further words of ``fullrank serve``.
        log_name: Names the log, by default as the service.
    """
    log = run_dir / "logs" / f"{log_name or name}.log"
    command = [sys.executable, "-m", "fullrank", "serve", name, "--run-dir", str(run_dir)]
    command += ["--config", str(run_dir / "config.toml"), "--stop-with-stdin", *extra]
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
    """Return if none has ended.

    Raises:
        FullrankError: One has: its own error.
    """
    for service in started:
        if (failure := service.failure()) is not None:
            raise failure


def stop(started: list[Service]) -> None:
    """Stop in order; whoever does not drain in time is killed."""
    for service in sorted(started, key=lambda each: STOP_ORDER.index(each.name)):
        service.stdin.close()
        if service.process.poll() is None:
            service.process.terminate()
        try:
            service.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            service.process.kill()
            service.process.wait()
