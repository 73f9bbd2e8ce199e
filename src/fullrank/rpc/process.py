"""What every service process is started with, and how it waits for its end."""

import asyncio
import atexit
import ctypes
import gc
import signal
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

from threadpoolctl import threadpool_limits

from fullrank.config import Resolved, RunConfig

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's mallopt (malloc.h)."""

STOPPING = (signal.SIGTERM, signal.SIGINT)
"""What tells a service to stop."""

THREADS = 8
"""On which a service waits for disks, for other loops and for long computations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The arguments of ``fullrank serve NAME``."""

    resolved: Resolved
    """Not checked against plug-ins: only the controller pays for importing them all."""
    run_dir: Path | None = None
    replicas: int = 1
    """Learners in this process's care (learner only)."""
    until_finished: bool = False
    """End when the run is finished (learner only)."""
    stop_with_stdin: bool = False
    """Stop when standard input closes: the parent is gone, however it died."""

    @property
    def config(self) -> RunConfig:
        """The configuration."""
        return self.resolved.config


def tune_process(launch: Launch) -> None:
    """Process-wide settings that every service starts with.

    numpy's BLAS keeps to the configured threads: idle ones spin and steal the learners' cores.
    glibc keeps the pages of freed messages: otherwise each large message is mapped and faulted in
    anew, which costs more than copying it.
    The garbage collector leaves out what was imported: looking through it all takes a controller
    87 ms, in which it does nothing else, and unshares the pages of learners that were forked.
    """
    gc.freeze()
    threadpool_limits(limits=launch.config.compute.threads, user_api="blas")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_TOP_PAD, 2**26)


def run(serving: Coroutine[object, object, None]) -> None:
    """Run a service to its end, on as many threads from the beginning as it ever has.

    asyncio by itself starts one more whenever calls happen to meet, for hours.
    """
    asyncio.run(_on_threads(serving))


async def _on_threads(serving: Coroutine[object, object, None]) -> None:
    pool, everybody = ThreadPoolExecutor(THREADS), Barrier(THREADS)
    for _ in range(THREADS):
        pool.submit(everybody.wait)
    asyncio.get_running_loop().set_default_executor(pool)  # which ends it, too
    await serving


def be_deaf() -> None:
    """Be told to stop no more: in its last moments a process would end by that, as if it failed.

    At once the system ignores the signals. Python does so at its end only, when it would give them
    back their defaults: a thread may have taken one that Python hears of later, and that is an
    error in the log if its handler is gone.
    """
    for number in STOPPING:
        ctypes.pythonapi.PyOS_setsig(number, ctypes.c_void_p(signal.SIG_IGN))
        atexit.register(signal.signal, number, signal.SIG_IGN)


def stop_event(launch: Launch) -> asyncio.Event:
    """An event set by SIGTERM, SIGINT or, if asked for, by the end of standard input.

    Who was told is deaf from then on.
    """
    event, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        event.set()
        if launch.stop_with_stdin:
            loop.remove_reader(sys.stdin)

    def told(*_: object) -> None:
        be_deaf()
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    for number in STOPPING:
        signal.signal(number, told)
    if launch.stop_with_stdin:
        loop.add_reader(sys.stdin, told)
    return event
