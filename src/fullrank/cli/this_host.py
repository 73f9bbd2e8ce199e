"""Runs of this host: the run directory is the object.

A process trains it or does not, and leaves its outcome there.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fullrank.cli.objects import (
    HALF_SUBMITTED,
    INTERRUPTED,
    TOLD,
    Condition,
    RunObject,
    State,
    by_answer,
    by_ending,
    by_exit,
)
from fullrank.cli.runs import RUNS, find_run
from fullrank.cli.say import say
from fullrank.common.errors import FullrankError, NotFound, ServiceLost, expected, of_exit_code
from fullrank.common.foreign import LINE_BYTES, open_regular
from fullrank.host.process import AT_END, GRACE_S, interrupting
from fullrank.host.run_directory import LOCK, holder_of, lock_launch, trainer_of
from fullrank.runs.ending import OUTCOME, is_since, leave_outcome, read_ending, read_outcome
from fullrank.runs.identity import CONFIGURATION, IDENTITY, read_identity
from fullrank.runs.record import published

LOGS = "logs"
"""Folder of a run's logs."""
POLL_S, STOP_S = 0.1, 10 * GRACE_S
"""Period at which a process that starts or ends is looked for, and longest wait for its end."""


@contextmanager
def attached(run_dir: Path) -> Iterator[None]:
    """Hold a run directory while this process trains in it, and leave the outcome there.

    Raises:
        RunDirectoryInUse: Another process trains in it.
    """
    with interrupting(), lock_launch(run_dir):  # whoever reads its id in the lock may stop it
        try:
            (run_dir / OUTCOME).unlink(missing_ok=True)
            AT_END.append(lambda error: leave_outcome(run_dir, error.exit_code, str(error)))
            yield
            leave_outcome(run_dir, 0)
        except BaseException as error:
            known = expected(error) or FullrankError(repr(error))
            stopped = isinstance(error, KeyboardInterrupt)
            facts = (INTERRUPTED, TOLD) if stopped else (known.exit_code, str(known))
            leave_outcome(run_dir, *facts)
            raise
        finally:
            AT_END.clear()


class ThisHost:
    """This host: run directories below ``runs``, or given by their paths."""

    name = "host"

    def names(self) -> list[str]:
        """Names of the run directories below ``runs``."""
        return sorted(path.parent.name for path in RUNS.glob(f"*/{CONFIGURATION}"))

    def look(self, name: str) -> RunObject:
        """The run in a directory.

        Raises:
            FullrankError: There is no such directory, or its files cannot be read.
        """
        path = find_run(name)
        return RunObject(path.resolve().name, self.name, *condition_of(path), str(path))

    def stop(self, name: str) -> str:
        """Tell the process that trains a run to stop, wait until it has, and say how it ended.

        Raises:
            NotFound: There is no such process.
            ServiceLost: It has not ended in time.
        """
        path = find_run(name)
        if (trainer := trainer_of(path)) is None:
            raise NotFound(f"no process of this host trains {path}")
        leaves_outcome = holder_of(path / LOGS) == trainer  # unless it is killed
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(trainer, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while trainer_of(path) == trainer:
            if time.monotonic() > deadline:
                late = f"process {trainer}, told to stop {STOP_S:.0f} s ago, goes on"
                raise ServiceLost(f"{late}: see its log, wait, or end it by `kill -KILL {trainer}`")
            time.sleep(POLL_S)
        if not leaves_outcome and read_ending(path) is None and read_outcome(path) is None:
            leave_outcome(path, INTERRUPTED, TOLD)
        if (found := self.look(name)).exit_code != INTERRUPTED:
            return str(found)
        return f"stopped after {published(path)} iterations; `fullrank run resume {name}` goes on"

    def logs(self, name: str, *, follow: bool) -> None:
        """Print the newest log of a controller, or the output of the process if there is none."""
        path = find_run(name)
        logs = [path / LOGS / f"{each}.log" for each in ("controller", "local")]
        found = [log for log in logs if log.exists()] or [path / LOGS / "run.log"]
        newest = max(found, key=lambda log: log.stat().st_mtime if log.exists() else 0)
        if not newest.exists():
            raise NotFound(f"{path} has no log yet")
        with open_regular(newest) as log:
            begun, ended = b"", False
            while True:
                while piece := log.readline(LINE_BYTES - len(begun)):
                    begun += piece
                    if piece.endswith(b"\n") or len(begun) == LINE_BYTES:
                        _print(begun)
                        begun = b""
                if ended or not follow:
                    _print(begun)
                    return
                ended = trainer_of(path) is None  # then what it has written last is read
                time.sleep(0 if ended else POLL_S)


def _print(log: bytes) -> None:
    """Print a line of a log, which may be a stranger's; nothing if it is empty."""
    if log:
        say(log.removesuffix(b"\n").decode(errors="replace"))


def condition_of(path: Path) -> Condition:
    """The condition of the run in a directory of this host."""
    trainer = trainer_of(path)  # before what it writes last
    ending = read_ending(path)
    if trainer is not None and not (ending and is_since(path / IDENTITY, path / LOGS / LOCK)):
        return _asked(path)
    if ending is not None:
        return by_ending(ending)
    if (outcome := read_outcome(path)) is not None:
        code, reason = outcome
        stopped = Condition(State.PENDING, reason, code)
        return stopped if code == INTERRUPTED else by_exit(code, reason)
    if trainer_of(path) is not None:  # it has just begun, and removed the outcome
        return condition_of(path)
    if not (path / IDENTITY).exists() and not (path / LOGS / LOCK).exists():
        return HALF_SUBMITTED
    if (path / IDENTITY).exists():
        read_identity(path)  # names a file that is damaged
    return by_exit(
        ServiceLost.exit_code,
        "no process of this host trains it, and none has said why: it was killed, or its machine "
        "was lost; `fullrank run resume` goes on",
    )


def _asked(path: Path) -> Condition:
    """Ask the controller of a run, which a process trains."""
    from fullrank.cli.options import tls_of
    from fullrank.net.monitor import Monitor, monitor_of  # imports gRPC

    try:
        address, security = monitor_of(str(path), tls_of(None))
    except ServiceLost:
        return Condition(State.PENDING, "its services start, or stop")
    try:
        with Monitor(address, security=security) as monitor:
            return by_answer(monitor.status())
    except ServiceLost as error:
        return Condition(State.STALLED, str(error))


def begin(path: Path, *, local: bool = False, trust: Collection[str] = ()) -> None:
    """Start a process of its own that trains the run in a directory, and wait until it holds it.

    Args:
        path: The directory.
        local: True to train in that one process.
        trust: Values of ``--trust``.

    Raises:
        FullrankError: It has ended at once; the error is its own.
    """
    # -P: as for services, no module of the working directory takes the place of another.
    command = [sys.executable, "-P", "-m", "fullrank", "run", "resume", "--attach"]
    command += [str(path.absolute()), *["--local"] * local, *(f"--trust={each}" for each in trust)]
    log = path / LOGS / "run.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        before = output.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while trainer_of(path) != process.pid:
        if code := process.poll():
            said = log.read_bytes()[before:].decode(errors="replace")
            last = said.strip().rpartition("\n")[2]
            raise of_exit_code(code, last.removeprefix("fullrank: ") or f"it ended; see {log}")
        if code == 0:
            return
        time.sleep(POLL_S)
