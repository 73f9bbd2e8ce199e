"""What every service process is started with, and how it waits for its end."""

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from fullrank.config import Resolved, RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The arguments of ``fullrank serve NAME``."""

    resolved: Resolved
    """Not checked against plug-ins: only the controller pays for importing them all."""
    run_dir: Path | None = None
    replicas: int = 1
    """Learners in this process's care (learner only)."""
    stop_with_stdin: bool = False
    """Stop when standard input closes: the parent is gone, however it died."""

    @property
    def config(self) -> RunConfig:
        """The configuration."""
        return self.resolved.config


def limit_threads(launch: Launch) -> None:
    """Keep numpy's BLAS to the configured threads: idle ones spin and steal the learners' cores."""
    threadpool_limits(limits=launch.config.compute.threads, user_api="blas")


def stop_event(launch: Launch) -> asyncio.Event:
    """An event set by SIGTERM, SIGINT or, if asked for, by the end of standard input."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    if launch.stop_with_stdin:
        loop.add_reader(sys.stdin.fileno(), event.set)
    return event
