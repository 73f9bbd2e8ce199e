"""Replicas of a service: processes that share one import of torch, supervised by their parent."""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

from fullrank.common.errors import FullrankError, Stuck
from fullrank.rpc.process import STOPPING, Launch, ignore_signals, print_error, signals_held

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
    supervised, stopping = replace(launch, supervisor=pipe), Event()
    children: dict[int, tuple[int, float]] = {}  # number and birth by process
    pauses = [Pauses() for _ in range(launch.replicas)]

    def begin(number: int) -> None:
        child = _fork(partial(replica, supervised, number), close=held)
        children[child] = number, restarts.clock()

    def stop(*_: object) -> None:
        stopping.set()
        _pass_on(list(children))

    with signals_held():  # a signal between the first fork and the handlers would leave orphans
        for number in range(launch.replicas):
            begin(number)
        for signalled in STOPPING:
            signal.signal(signalled, stop)
    code = 0
    while children:
        child, status = os.waitpid(-1, 0)
        number, born_at = children.pop(child)
        ended = os.waitstatus_to_exitcode(status)
        dies = ended < 0 or ended == Stuck.exit_code
        if dies and not stopping.is_set():
            pause_s = pauses[number].after(restarts.clock() - born_at)
            line = "replica_died replica=%d code=%d again_in_s=%.1f"
            restarts.say(line, number, ended, pause_s)
            stopping.wait(pause_s)
            with signals_held():
                if not stopping.is_set():
                    begin(number)
        else:
            code = code or ended
    ignore_signals()
    return code


def _fork(replica: Callable[[], int], *, close: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(close)
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
        try:
            os.kill(child, signal.SIGTERM)
        except ProcessLookupError:
            continue


def run_replica(serving: Coroutine[object, object, None]) -> int:
    """Run one replica to its end; returns its exit code."""
    try:
        asyncio.run(serving)
    except FullrankError as error:
        print_error(error)
        return error.exit_code
    return 0
