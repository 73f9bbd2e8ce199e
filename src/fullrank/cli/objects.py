"""A run as an object, in any of three places, and the place that is this host.

A place says what it knows of a run, and ``judged`` makes of that one of five states. On this host
the run directory is the object: a process trains it or does not, and leaves its outcome there.
"""

import json
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
from fullrank.common.durable import replace_text
from fullrank.common.errors import FullrankError, NotFound, ServiceLost, expected, of_exit_code
from fullrank.common.foreign import TEXT, brief, parse_json, read_regular
from fullrank.host.process import interrupting
from fullrank.host.run_directory import LOCK, lock_launch, trainer_of
from fullrank.net.status import RunState, RunStatus
from fullrank.runs.ending import Ending, read_ending
from fullrank.runs.identity import CONFIGURATION, IDENTITY
from fullrank.runs.record import published

LOGS, OUTCOME = "logs", "outcome.json"
"""Folder of a run's logs, and the file in it with the outcome of the last process that trained."""
INTERRUPTED = 130
"""Exit code of a process that was told to stop."""
POLL_S = 0.1
"""Period at which a process that starts or ends is looked for."""


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
        return (
            f"{self.name} on {self.on}: {self.state}{': ' * bool(self.reason)}{self.reason}{code}"
        )


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
    phase = RunState.RUNNING  # also for one of a later version
    if isinstance(status.state, RunState):
        phase = status.state
    state = State.PENDING if phase is RunState.STARTING else State(phase.upper())
    return Condition(state, status.message, codes.get(phase))


@contextmanager
def attached(run_dir: Path) -> Iterator[None]:
    """Hold a run directory while this process trains in it, and leave the outcome there.

    Raises:
        RunDirectoryInUse: Another process trains in it.
    """
    with lock_launch(run_dir), interrupting():
        outcome = run_dir / LOGS / OUTCOME
        outcome.unlink(missing_ok=True)
        try:
            yield
        except BaseException as error:
            known = expected(error)
            facts = {
                "exit_code": FullrankError.exit_code if known is None else known.exit_code,
                "reason": brief(" ".join(str(known or repr(error)).split()), limit=1000),
            }
            if isinstance(error, KeyboardInterrupt):
                facts = {"exit_code": INTERRUPTED, "reason": "told to stop"}
            if outcome.parent.is_dir():  # a new run that failed leaves nothing
                with suppress(OSError):
                    replace_text(outcome, json.dumps(facts) + "\n")
            raise


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
        path = find_run(Path(name))
        own = path.resolve().name
        return object_of(said_by(path), name=own, on=self.name, results=str(path))

    def stop(self, name: str) -> str:
        """Tell the process that trains a run to stop, and wait until it has.

        Raises:
            NotFound: There is no such process.
        """
        path = find_run(Path(name))
        if (trainer := trainer_of(path)) is None:
            raise NotFound(f"no process of this host trains {path}")
        os.kill(trainer, signal.SIGTERM)
        while trainer_of(path) == trainer:
            time.sleep(POLL_S)
        return f"stopped after {published(path)} iterations; `fullrank run resume {name}` goes on"

    def logs(self, name: str, *, follow: bool) -> None:
        """Print the newest log of a controller, or the output of the process if there is none."""
        path = find_run(Path(name))
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
    if trainer is not None:
        return _asked(path, None if _began_after(path, ending) else ending)
    if ending is not None:
        return Said(phase="ended", ending=ending)
    with suppress(FullrankError, KeyError, TypeError, ValueError):
        facts = parse_json(read_regular(path / LOGS / OUTCOME, TEXT.size), origin=OUTCOME)
        code = int(facts["exit_code"])
        stopped = code == INTERRUPTED
        return Said(
            phase="stopped" if stopped else "ended", reason=str(facts["reason"]), exit_code=code
        )
    if not (path / IDENTITY).exists() and not (path / LOGS / LOCK).exists():
        reason = "half submitted: no process has begun; `fullrank run resume` starts one"
        return Said(phase="waits", reason=reason)
    return Said(
        phase="ended",
        reason="no process of this host trains it, and none has said why: it was killed, or its "
        "machine was lost; `fullrank run resume` goes on",
        exit_code=ServiceLost.exit_code,
    )


def _began_after(path: Path, ending: Ending | None) -> bool:
    """True if a process was started after a run had failed, which it tries again."""
    if ending is None or ending.state == "finished":
        return False
    with suppress(OSError):
        lock = path / LOGS / LOCK
        return lock.stat().st_mtime_ns > (path / IDENTITY).stat().st_mtime_ns
    return False


def _asked(path: Path, ending: Ending | None) -> Said:
    """Ask the controller of a run, which a process trains."""
    if ending is not None:
        return Said(phase="works", ending=ending)
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
    command.append(str(path.absolute()))
    command += ["--local"] * local + [word for each in trust for word in ("--trust", each)]
    log = path / LOGS / "run.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while trainer_of(path) != process.pid:
        if code := process.poll():
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise of_exit_code(code, last.removeprefix("fullrank: ") or f"it ended; see {log}")
        if code == 0:
            return
        time.sleep(POLL_S)
