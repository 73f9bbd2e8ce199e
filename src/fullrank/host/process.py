"""Arguments, process-wide settings, tasks and shutdown of a service process."""

import asyncio
import atexit
import ctypes
import gc
import operator
import os
import select
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from math import inf
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import NoReturn, TypeAlias, TypeVar, cast

from threadpoolctl import threadpool_limits

from fullrank.common.errors import ConfigError, FullrankError
from fullrank.common.imports import collecting_later
from fullrank.common.registry import nearest
from fullrank.common.text import plain
from fullrank.config.layers import Resolved
from fullrank.config.tree import RunConfig
from fullrank.sinks import MetricsSink

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's mallopt (malloc.h)."""

Result = TypeVar("Result")

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop a service; SIGHUP, that of a closed terminal, unless it is ignored."""

GRACE_S = 15.0
"""Time for a service to checkpoint and drain before it is killed."""
STOPPED = (
    "told to stop before the run has ended; start this service again, or `fullrank run resume`"
)
"""Reason for which a service ends that was to serve until the run's end."""
ORPHANED = 9
"""Exit code of a process that has not stopped in time after its parent; that of ServiceLost."""

GROUP = "fullrank.services"
"""Entry points of services, by name."""

THREADS = 8
"""Threads of a service for disks, other event loops and long computations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The arguments of ``fullrank serve NAME``."""

    resolved: Resolved
    """Not checked against plug-ins: only the controller pays for importing them all."""
    run_dir: Path | None = None
    replicas: int = 1
    """Learner processes to fork and supervise (learner only)."""
    until_finished: bool = False
    """End with the run; of several runs of one replay service, with the last."""
    stop_with_stdin: bool = False
    """Stop when standard input closes, that is when the parent has died, however it did."""
    supervisor: int | None = None
    """Stop when this pipe closes, that is when the process that forked this one has died."""
    observers: Sequence[MetricsSink] = ()
    """Receivers of committed records beside the configured sinks (local only)."""
    report: Callable[[str], None] | None = None
    """Takes the progress of the warm-up, and an empty text after it (local only)."""

    @property
    def config(self) -> RunConfig:
        """Return the resolved configuration."""
        return self.resolved.config


ServiceMain: TypeAlias = Callable[[Launch], int]
"""Runs a service until it ends; returns the exit status of the process."""


def find_service(name: str) -> ServiceMain:
    """The service of a name.

    Raises:
        ConfigError: There is no such service, or a package that it needs is not installed.
    """
    services = {point.name: point for point in entry_points(group=GROUP)}
    if name not in services:
        raise ConfigError(f"unknown service {name!r}{nearest(name, list(services))}")
    try:
        with collecting_later():
            return cast(ServiceMain, services[name].load())
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the {name} needs the package {error.name!r}: pip install 'fullrank[{name}]'"
        ) from error


def tune_process(launch: Launch) -> None:
    """Process-wide settings that every service starts with.

    The BLAS libraries of NumPy and of SciPy, which is imported later if at all, use the configured
    number of threads: idle ones spin on the learners' cores.
    Freed pages are kept for the next message.
    The garbage collector ignores imported modules: traversing them pauses a controller for 87 ms
    and unshares the pages of forked learners.
    """
    gc.freeze()
    threads = launch.config.compute.threads
    threadpool_limits(limits=threads, user_api="blas")
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    keep_freed_pages()


def keep_freed_pages() -> None:
    """Let glibc keep the pages of freed arrays and messages.

    Otherwise each large one is mapped and faulted in anew, which costs more than copying it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_TOP_PAD, 2**26)


def return_freed_pages() -> None:
    """Let glibc give the pages that it has kept back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def print_error(error: FullrankError) -> None:
    """Print why this process ends, as a plain line that its parent repeats."""
    print(f"fullrank: {plain(error)}", file=sys.stderr, flush=True)  # noqa: T201


AT_END: list[Callable[[FullrankError], None]] = []
"""What ``end_process`` calls, for ten seconds at most: the disk itself may hang."""


def end_process(error: FullrankError) -> NoReturn:
    """End this process at once, without any cleaning up, and print why."""
    print_error(error)
    for call in AT_END:
        (thread := Thread(target=call, args=(error,), daemon=True)).start()
        thread.join(10.0)
    os._exit(error.exit_code)


def run(serving: Coroutine[object, object, Result]) -> Result:
    """Run a service to its end, with all its threads started at once; returns its result.

    asyncio starts another thread whenever calls happen to coincide, for hours.
    """
    return asyncio.run(_on_threads(serving))


async def _on_threads(serving: Coroutine[object, object, Result]) -> Result:
    pool, started = ThreadPoolExecutor(THREADS), Barrier(THREADS)
    for _ in range(THREADS):
        pool.submit(started.wait)
    asyncio.get_running_loop().set_default_executor(pool)  # asyncio.run shuts it down
    return await serving


def ignore_signals() -> None:
    """Ignore further stop signals, so that shutdown is not reported as a failure.

    The system ignores them at once. Python's handlers stay until the interpreter exits: a thread
    may have received a signal that Python processes later, which logs an error if its handler is
    gone.
    """
    for number in STOPPING:
        ctypes.pythonapi.PyOS_setsig(number, ctypes.c_void_p(signal.SIG_IGN))
        atexit.register(signal.signal, number, signal.SIG_IGN)


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold stop signals back until the end of the context, where they take effect.

    A process that is forked meanwhile holds its own back until its ``stop_event``.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear(numbers: Iterable[signal.Signals]) -> tuple[int, int]:
    """Have the numbers of these signals written to a pipe as they arrive; return both its ends.

    The system's handler itself writes them, so that none waits for the main thread, which may be
    about to wait for something else. Python's handler has no effect, and is a function of C: one
    written in Python is interrupted by the next signal before its first line, so that a flood of
    signals would end in a ``RecursionError``.
    """
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, operator.is_)
    return heard, told


def stop_event(launch: Launch) -> asyncio.Event:
    """An event set by ``STOPPING`` or, if asked for, by the end of a pipe that another holds.

    Signals that were held back take effect now. Further signals are ignored once it is set. A
    process whose pipe has ended has ``GRACE_S`` to end, as a parent that lives would give it, even
    if its event loop is stuck.
    """
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    pipes = [sys.stdin.fileno()] if launch.stop_with_stdin else []
    pipes += [] if launch.supervisor is None else [launch.supervisor]

    heard, told = hear(heeded())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    def heed() -> None:
        (number,) = os.read(heard, 1)
        ignore_signals()
        _leave_terminal(number)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(event.set)

    Thread(target=heed, daemon=True).start()
    for pipe in pipes:
        Thread(target=_end_with, args=(pipe, told), daemon=True).start()
    return event


@contextmanager
def interrupting() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the body, as Ctrl-C does."""

    def interrupt(number: int, *_: object) -> NoReturn:
        _leave_terminal(number)
        raise KeyboardInterrupt

    numbers = [number for number in heeded() if number != signal.SIGINT]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def heeded() -> list[signal.Signals]:
    """The signals that stop this process; ``nohup`` has SIGHUP ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if number != signal.SIGHUP or not ignored]


def _leave_terminal(number: int) -> None:
    """Write nowhere from now on if the terminal is closed: every write to it would fail."""
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for shown in (1, 2):
            if stat.S_ISCHR(os.fstat(shown).st_mode):
                os.dup2(nowhere, shown)
        os.close(nowhere)


def _end_with(pipe: int, told: int) -> None:
    """Tell this process to stop when a pipe ends, and end it if it has not stopped in time."""
    select.select([pipe], [], [])
    with suppress(BlockingIOError):  # it is full of signals
        os.write(told, bytes([signal.SIGTERM]))
    Event().wait(GRACE_S)
    os._exit(ORPHANED)


CallResult = TypeVar("CallResult")

QUICK_S = 1e-3
"""Duration below which work is repeated on the event loop, seconds. A change of threads and back
takes a tenth of it on idle cores, and as long on cores that learners use
(``benchmarks/round_overhead.py``)."""


async def first(*awaitables: Awaitable[None]) -> None:
    """Run all until the first finishes, cancel the others, and return or raise as the first did.

    If several fail together, the error of the one given first is raised.
    """
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:  # a set of tasks has no stable order
        if task in done:
            task.result()


async def is_set(event: asyncio.Event) -> None:
    """Return once an event is set."""
    await event.wait()


class QuickCalls:
    """Calls of one kind: each on a thread, or on the event loop if the one before was quick."""

    def __init__(self) -> None:
        self._last_s = inf

    def call(self, function: Callable[[], CallResult]) -> "asyncio.Future[CallResult]":
        """Begin a call; returns the future of its result, which a call on the event loop has."""
        loop = asyncio.get_running_loop()
        if self._last_s >= QUICK_S:
            return loop.run_in_executor(None, self._measured, function, loop.time)
        future: asyncio.Future[CallResult] = loop.create_future()
        future.set_result(self._measured(function, loop.time))
        return future

    def _measured(
        self, function: Callable[[], CallResult], clock: Callable[[], float]
    ) -> CallResult:
        began_at = clock()
        try:
            return function()
        finally:
            self._last_s = clock() - began_at
