"""A run as an object, in any of three places, and the place that is this host.

A place says what it knows of a run, and ``judged`` makes of that one of five states. On this host
the run directory is the object: a process trains it or does not, and leaves its outcome there.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

from fullrank.cli.runs import RUNS, find_run
from fullrank.common.errors import FullrankError, NotFound, ServiceLost, expected, of_exit_code
from fullrank.host.process import AT_END, GRACE_S, interrupting
from fullrank.host.run_directory import LOCK, lock_launch, trainer_of
from fullrank.net.status import RunState, RunStatus
from fullrank.runs.ending import OUTCOME, Ending, is_since, leave_outcome, read_ending, read_outcome
from fullrank.runs.identity import CONFIGURATION, IDENTITY
from fullrank.runs.record import published

INTERRUPTED, TOLD = 130, "told to stop"
"""Exit code of a process that was told to stop, and its reason."""
LOGS = "logs"
"""Folder of a run's logs."""
POLL_S, STOP_S = 0.1, 10 * GRACE_S
"""Period at which a process that starts or ends is looked for, and longest wait for its end."""


class State(StrEnum):
    """State of a run as an object."""

    PENDING = "PENDING"
    """It waits: for its processes, in a queue, or, told to stop, for ``run resume``."""
    RUNNING = "RUNNING"
    STALLED = "STALLED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObject:
    """A run in its place."""

    name: str
    on: str
    """Its place: ``host``, ``compose`` or ``kubernetes``."""
    state: State
    reason: str
    """Why it waits or has failed; empty if it runs."""
    exit_code: int | None
    """That of the process that has ended it, or has stopped; None while it goes on."""
    results: str
    """Where its directory is: a path, a volume, a claim, or the URL of its store."""

    def __str__(self) -> str:
        code = f" (exit code {self.exit_code})" if self.exit_code else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.name} on {self.on}: {self.state}{reason}{code}"


class Condition(NamedTuple):
    """State of a run, its reason and its exit code."""

    state: State
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a place says of a run."""

    phase: Literal["waits", "works", "stopped", "ended"]
    """Of its controller: not at work yet, at work, told to stop, or ended by itself."""
    reason: str = ""
    exit_code: int | None = None
    """Exit code of the controller, where it has ended."""
    answer: Condition | None = None
    """What the controller itself answers; None if it does not."""
    ending: Ending | None = None
    """The end that the run's directory states."""


def judged(said: Said) -> Condition:
    """State of a run from what its place says."""
    if said.answer is not None:
        return said.answer
    if (ending := said.ending) is not None:
        return Condition(State(ending.state.upper()), ending.reason, ending.exit_code)
    if said.phase == "works":
        return Condition(State.STALLED, said.reason or "its controller does not answer")
    state = State.PENDING
    if said.phase == "ended":
        state = State.FAILED if said.exit_code else State.FINISHED
    return Condition(state, said.reason, said.exit_code)


def object_of(said: Said, *, name: str, on: str, results: str) -> RunObject:
    """The run of which a place says this."""
    return RunObject(name=name, on=on, results=results, **judged(said)._asdict())


def condition_of(status: RunStatus) -> Condition:
    """The answer of a controller."""
    codes = {RunState.FINISHED: 0, RunState.FAILED: status.exit_code}
    # A state of a later version is none of these.
    phase = status.state if isinstance(status.state, RunState) else RunState.RUNNING
    state = State.PENDING if phase is RunState.STARTING else State(phase.upper())
    return Condition(state, status.message, codes.get(phase))


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

    def knows(self, name: str) -> bool:
        """True if a name is taken below ``runs``."""
        return (RUNS / name).exists()

    def look(self, name: str) -> RunObject:
        """The run in a directory.

        Raises:
            FullrankError: There is no such directory, or its files cannot be read.
        """
        path = find_run(name)
        own = path.resolve().name
        return object_of(said_by(path), name=own, on=self.name, results=str(path))

    def stop(self, name: str) -> str:
        """Tell the process that trains a run to stop, wait until it has, and say how it ended.

        Raises:
            NotFound: There is no such process.
            ServiceLost: It has not ended in time.
        """
        path = find_run(name)
        if (trainer := trainer_of(path)) is None:
            raise NotFound(f"no process of this host trains {path}")
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(trainer, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while trainer_of(path) == trainer:
            if time.monotonic() > deadline:
                late = f"process {trainer}, told to stop {STOP_S:.0f} s ago, goes on"
                raise ServiceLost(f"{late}: see its log, wait, or end it by `kill -KILL {trainer}`")
            time.sleep(POLL_S)
        if read_ending(path) is None and read_outcome(path) is None:  # of services without `train`
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
        with newest.open(errors="replace") as log:
            ended = False
            while True:
                sys.stdout.write(log.read())
                sys.stdout.flush()
                if ended or not follow:
                    return
                ended = trainer_of(path) is None  # then what it has written last is read
                time.sleep(0 if ended else POLL_S)


def said_by(path: Path) -> Said:
    """What a run directory of this host says."""
    trainer = trainer_of(path)  # before what it writes last
    ending = read_ending(path)
    if trainer is not None and not (ending and is_since(path / IDENTITY, path / LOGS / LOCK)):
        return _asked(path)
    if ending is not None:
        return Said(phase="ended", ending=ending)
    if (outcome := read_outcome(path)) is not None:
        code, reason = outcome
        phase: Literal["stopped", "ended"] = "stopped" if code == INTERRUPTED else "ended"
        return Said(phase=phase, reason=reason, exit_code=code)
    if trainer_of(path) is not None:  # it has just begun, and removed the outcome
        return said_by(path)
    if not (path / IDENTITY).exists() and not (path / LOGS / LOCK).exists():
        return Said(phase="waits", reason="half submitted: `fullrank run resume` starts it")
    return Said(
        phase="ended",
        reason="no process of this host trains it, and none has said why: it was killed, or its "
        "machine was lost; `fullrank run resume` goes on",
        exit_code=ServiceLost.exit_code,
    )


def _asked(path: Path) -> Said:
    """Ask the controller of a run, which a process trains."""
    from fullrank.cli.options import tls_of
    from fullrank.net.monitor import Monitor, monitor_of  # imports gRPC

    try:
        address, security = monitor_of(str(path), tls_of(None))
    except ServiceLost:
        return Said(phase="waits", reason="its services start, or stop")
    try:
        with Monitor(address, security=security) as monitor:
            return Said(phase="works", answer=condition_of(monitor.status()))
    except ServiceLost as error:
        return Said(phase="works", reason=str(error))


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
