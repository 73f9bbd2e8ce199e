"""A run as an object, in any of three places: its name, its place, its state and its end.

What a place knows of a run is its condition, one of five states: the answer of the controller comes
first, then the end in its directory, then what is known of its process.
"""

from enum import StrEnum
from typing import NamedTuple

from fullrank.common.errors import RunDirectoryInUse
from fullrank.net.status import RunState, RunStatus
from fullrank.runs.ending import Ending

INTERRUPTED, TOLD = 130, "told to stop"
"""Exit code of a process that was told to stop, and its reason."""


class State(StrEnum):
    """State of a run as an object."""

    PENDING = "PENDING"
    """It waits: for its processes, in a queue, or, told to stop, for ``run resume``."""
    RUNNING = "RUNNING"
    STALLED = "STALLED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


class Condition(NamedTuple):
    """State of a run, its reason and its exit code."""

    state: State
    reason: str = ""
    exit_code: int | None = None


HALF_SUBMITTED = Condition(State.PENDING, "half submitted: `fullrank run resume` starts it")


class RunObject(NamedTuple):
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

    def why(self) -> str:
        """Reason and exit code, as far as there are any."""
        code = f"(exit code {self.exit_code})" if self.exit_code else ""
        return " ".join(filter(None, (self.reason, code)))

    def __str__(self) -> str:
        return ": ".join(filter(None, (f"{self.name} on {self.on}", self.state, self.why())))


def by_exit(code: int, reason: str = "") -> Condition:
    """The condition of a run that has ended by itself with an exit code."""
    return Condition(State.FAILED if code else State.FINISHED, reason, code)


def by_ending(ending: Ending) -> Condition:
    """The condition of a run whose directory states its end."""
    return Condition(State(ending.state.upper()), ending.reason, ending.exit_code)


def by_answer(status: RunStatus) -> Condition:
    """The condition of a run whose controller answers."""
    codes = {RunState.FINISHED: 0, RunState.FAILED: status.exit_code}
    # A state of a later version is none of these.
    phase = status.state if isinstance(status.state, RunState) else RunState.RUNNING
    state = State.PENDING if phase is RunState.STARTING else State(phase.upper())
    return Condition(state, status.message, codes.get(phase))


def taken(run: str, on: str) -> RunDirectoryInUse:
    """The error of a name that a place has."""
    remedy = f"`fullrank run resume {run}` continues it, or choose another name"
    return RunDirectoryInUse(f"there is a run {run} on {on}: {remedy}")
