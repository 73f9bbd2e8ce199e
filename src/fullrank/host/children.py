"""Processes that a process starts, supervises and ends: replicas of a service, ranks of a group.

Replicas share one import of torch; one that dies is started again. Ranks start, obey and end as
one: the caller's process is rank 0, each other rank reads commands from a pipe and answers each by
one reply. It ends with its pipe, so with the caller's process, however that ends. A rank that dies,
or does not answer in time, raises here, and the caller ends the group.
"""

import asyncio
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Timer
from typing import Any

from fullrank.common.errors import DeadlinePassed, FullrankError, ServiceLost, Stuck
from fullrank.host.process import (
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


def run_replicas(
    launch: Launch,
    replica: Callable[[Launch, int], int],
    *,
    say: Callable[..., None],
    clock: Callable[[], float],
) -> int:
    """Fork ``launch.replicas`` processes and wait for their end; returns the exit code.

    A replica that a signal has killed or that was stuck is started again; one that ends with
    another exit code would end again.

    They are forked before any thread or gRPC object exists, so that torch is imported once;
    unchanged pages are shared. A replica ends with this process, even if that is killed: this
    process alone holds the writing end of a pipe, which then closes.

    Args:
        launch: Arguments of the service.
        replica: Runs the replica of a number; returns its exit code.
        say: Logs a line about a replica that is started again, as ``Logger.warning``.
        clock: Time of a monotonic clock, seconds.
    """
    pipe, held = os.pipe()
    supervised = replace(launch, supervisor=pipe)
    children: dict[int, tuple[int, float]] = {}  # number and birth by process
    due: dict[int, float] = {}  # time to start a replica again, by number
    pauses = [Pauses() for _ in range(launch.replicas)]

    def begin(number: int) -> None:
        with signals_held():
            child = _fork(partial(replica, supervised, number), close=held)
        children[child] = number, clock()

    heard, _ = hear((*heeded(), signal.SIGCHLD))
    for number in range(launch.replicas):
        begin(number)
    code, stopping = 0, False
    while children or due:
        if _next(heard, before=min(due.values(), default=None), clock=clock) in STOPPING:
            stopping = True
            due.clear()
            _pass_on(children)
        for child, ended in _reaped():
            number, born_at = children.pop(child)
            dies = ended < 0 or ended == Stuck.exit_code
            if dies and not stopping:
                pause_s = pauses[number].after(clock() - born_at)
                say("replica_died replica=%d code=%d again_in_s=%.1f", number, ended, pause_s)
                due[number] = clock() + pause_s
            else:
                code = code or ended
        for number in [each for each, at in due.items() if at <= clock()]:
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


START_S = 300.0
"""Time in which the ranks import torch and build their algorithms, seconds."""


class RankProcesses:
    """Ranks 1 to G - 1 of a group.

    Args:
        target: Runs a rank, given its arguments and its end of the pipe. It must be importable by
            name, and end when the pipe does or when it receives None.
        arguments: Arguments of each rank but the first.
        timeout_s: Deadline of a message and of a reply, seconds.
    """

    def __init__(
        self, target: Callable[..., None], arguments: Sequence[Sequence[Any]], *, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._silent: set[int] = set()  # ranks that were ended within a message
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        spawn = get_context("spawn")  # never forked: threads and devices do not survive it
        try:
            for rank, own in enumerate(arguments, start=1):
                pipe, theirs = spawn.Pipe()
                process = spawn.Process(
                    target=target, args=(*own, theirs), name=f"rank {rank}", daemon=True
                )
                process.start()
                theirs.close()
                self._pipes.append(pipe)
                self._processes.append(process)
        except BaseException:
            self.kill()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the numbers of their processes, in order."""
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def tell(self, messages: Sequence[Any]) -> None:
        """Send each rank its message; the replies name ranks that have died."""
        for rank, (pipe, message) in enumerate(zip(self._pipes, messages, strict=True), start=1):
            with (
                suppress(BrokenPipeError, ConnectionResetError),
                self._ending(rank, after_s=self._timeout_s),
            ):
                pipe.send(message)

    def replies(self, *, within_s: float | None = None) -> list[Any]:
        """Return the ranks' replies to one message, in order.

        Args:
            within_s: Longest time between two of them, seconds; by default that of the group.

        Raises:
            FullrankError: A rank raised it, died, or has not answered in time.
        """
        within_s = self._timeout_s if within_s is None else within_s
        replies: dict[int, Any] = {}
        numbers = {pipe: rank for rank, pipe in enumerate(self._pipes, start=1)}
        failure: FullrankError | None = None
        while len(replies) < len(numbers):
            open_ = [pipe for pipe in numbers if numbers[pipe] not in replies]
            ready = wait(open_, timeout=within_s)
            if not ready:
                raise failure or self._overdue([numbers[pipe] for pipe in open_], within_s)
            for pipe in (pipe for pipe in open_ if pipe in ready):
                rank = numbers[pipe]
                reply = self._receive(rank, pipe, within_s)
                if isinstance(reply, FullrankError) and not isinstance(reply, ServiceLost):
                    raise reply
                if isinstance(reply, ServiceLost):  # it noticed that another died, or hangs
                    failure = failure or reply
                replies[rank] = reply
        if failure is not None:
            raise failure
        return [replies[rank] for rank in sorted(replies)]

    def _receive(self, rank: int, pipe: Connection, within_s: float) -> Any:
        try:
            with self._ending(rank, after_s=within_s):
                return pipe.recv()
        except (EOFError, ConnectionResetError):
            if rank in self._silent:
                raise self._overdue([rank], within_s) from None
            self._processes[rank - 1].join(1.0)
            raise ServiceLost(
                f"rank {rank} of {len(self._processes) + 1} died "
                f"(exit code {self._processes[rank - 1].exitcode}); the run can be resumed"
            ) from None

    def _overdue(self, ranks: list[int], within_s: float) -> DeadlinePassed:
        silent = ", ".join(map(str, ranks))
        return DeadlinePassed(
            f"rank {silent} of {len(self._processes) + 1} has not answered within {within_s:g} s "
            "(controller.deadline_s); the run can be resumed"
        )

    @contextmanager
    def _ending(self, rank: int, *, after_s: float) -> Iterator[None]:
        """End a rank that stands still within a message, which would block this process."""

        def end() -> None:
            self._silent.add(rank)
            self._processes[rank - 1].kill()

        timer = Timer(after_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Let the ranks end, and end those that do not."""
        for pipe in self._pipes:
            with suppress(BrokenPipeError, ConnectionResetError):
                pipe.send(None)
        for process in self._processes:
            process.join(5.0)
        self.kill()

    def kill(self) -> None:
        """End all ranks at once."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._pipes, self._processes = [], []
