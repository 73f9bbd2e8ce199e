"""Replicas of a service: processes that share one import of torch, supervised by their parent."""

import asyncio
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from fullrank.common.errors import FullrankError, Stuck
from fullrank.rpc.process import (
    STOPPING,
    Launch,
    hear,
    heeded,
    ignore_signals,
    print_error,
    signals_held,
)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
"""Pauses before a replica that was killed is started again: the first, and the longest."""
LASTING_S = 60.0
"""Life of a replica after which its next death counts as the first."""


class Pauses:
    """Pauses before one replica is started again; they double while it dies young."""

    def __init__(self) -> None:
        self._deaths = 0

    def after(self, lived_s: float) -> float:
        """Return the pause after a life of this length, seconds."""
        self._deaths = 0 if lived_s >= LASTING_S else self._deaths
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._deaths, 20))
        self._deaths += 1
        return pause_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Log and clock for restarting replicas."""

    say: Callable[..., None]
    """Logs a line, as ``Logger.warning``."""
    clock: Callable[[], float]
    """Returns the time of a monotonic clock, in seconds."""


def run_replicas(launch: Launch, replica: Callable[[Launch, int], int], restarts: Restarts) -> int:
    """Fork ``launch.replicas`` processes and wait for their end; returns the exit code.

    A replica that a signal has killed or that was stuck is started again; one that ends with
    another exit code would end again.

    They are forked before any thread or gRPC object exists, so that torch is imported once;
    unchanged pages are shared. A replica ends with this process, even if that is killed: this
    process alone holds the writing end of a pipe, which then closes.

    Args:
        launch: Arguments of the service.
        replica: Runs the replica of a number; returns its exit code.
        restarts: Log and clock for starting replicas again.
    """
    pipe, held = os.pipe()
    supervised = replace(launch, supervisor=pipe)
    children: dict[int, tuple[int, float]] = {}  # number and birth by process
    due: dict[int, float] = {}  # time to start a replica again, by number
    pauses = [Pauses() for _ in range(launch.replicas)]

    def begin(number: int) -> None:
        with signals_held():
            child = _fork(partial(replica, supervised, number), close=held)
        children[child] = number, restarts.clock()

    heard, _ = hear((*heeded(), signal.SIGCHLD))
    for number in range(launch.replicas):
        begin(number)
    code, stopping = 0, False
    while children or due:
        if _next(heard, before=min(due.values(), default=None), clock=restarts.clock) in STOPPING:
            stopping = True
            due.clear()
            _pass_on(children)
        for child, ended in _reaped():
            number, born_at = children.pop(child)
            dies = ended < 0 or ended == Stuck.exit_code
            if dies and not stopping:
                pause_s = pauses[number].after(restarts.clock() - born_at)
                line = "replica_died replica=%d code=%d again_in_s=%.1f"
                restarts.say(line, number, ended, pause_s)
                due[number] = restarts.clock() + pause_s
            else:
                code = code or ended
        for number in [each for each, at in due.items() if at <= restarts.clock()]:
            del due[number]
            begin(number)
    ignore_signals()
    return code


def _next(heard: int, *, before: float | None, clock: Callable[[], float]) -> int | None:
    """Return the next signal, or None if there is none before this time of the clock."""
    timeout = None if before is None else max(0.0, before - clock())
    ready, _, _ = select.select([heard], [], [], timeout)
    return os.read(heard, 1)[0] if ready else None


def _reaped() -> Iterator[tuple[int, int]]:
    """Yield children that have ended with their exit codes; that of a signal is negative."""
    with suppress(ChildProcessError):  # there is no child
        while True:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            yield child, os.waitstatus_to_exitcode(status)


def _fork(replica: Callable[[], int], *, close: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(close)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = replica()
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _pass_on(children: Iterable[int]) -> None:
    ignore_signals()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)


def run_replica(serving: Coroutine[object, object, None]) -> int:
    """Run one replica to its end; returns its exit code."""
    try:
        asyncio.run(serving)
    except FullrankError as error:
        print_error(error)
        return error.exit_code
    return 0
