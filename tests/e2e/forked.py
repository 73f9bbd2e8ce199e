"""Services forked from a process that has imported them, as a learner's replicas are.

A service that is started as a command imports torch for seconds of processor time, one that is
forked begins at once: for tests that kill one controller after the other.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from importlib import reload
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import psutil
from tests.waiting import WAIT_S

from fullrank.cli import main
from fullrank.common import failpoints

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        *(__name__, "fullrank.cli.serve"),
        *(f"fullrank_{name}.server" for name in ("controller", "learner", "collector", "replay")),
    ]
)


def _run(
    words: tuple[str, ...], environ: dict[str, str], log: Path, before: Callable[[], None]
) -> None:
    """Be ``fullrank words...`` in an environment; its output is appended to a log."""
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(environ)
    path = environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in path if folder not in sys.path]
    reload(failpoints)  # it reads the environment once
    before()
    main(words)


def nothing() -> None:
    """Change nothing before the service starts."""


class Forked:
    """A forked ``fullrank serve words...``.

    Args:
        words: Name of the service and options.
        log: File to which its output is appended.
        env: Further variables of its environment.
        before: A function of a module that it calls first.
    """

    def __init__(
        self,
        *words: str,
        log: Path,
        env: Mapping[str, str] = MappingProxyType({}),
        before: Callable[[], None] = nothing,
    ) -> None:
        log.touch()
        environ = {**os.environ, **env}
        # It ends with the tests, if one has failed to end it.
        self._process: BaseProcess = _forks.Process(
            target=_run, args=(("serve", *words), environ, log, before), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float = WAIT_S) -> int:
        """Wait for its end; returns the exit code, or the negative number of a signal."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"it has not ended within {timeout} s"
        return self._process.exitcode

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def stop(self) -> int:
        """Stop it as a supervisor would; returns the exit code."""
        self._process.terminate()
        return self.wait()

    def kill(self) -> None:
        """Kill it, if it still runs, together with its children."""
        if self._process.is_alive():
            process = psutil.Process(self.pid)
            for each in [*process.children(recursive=True), process]:
                each.kill()
        self._process.join()


class Forks:
    """Forked services, of which those that still run are killed at the end of the context."""

    def __init__(self) -> None:
        self._started: list[Forked] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for service in self._started:
            service.kill()

    def start(self, *words: str, **options: Any) -> Forked:
        """Start a service; the arguments are those of ``Forked``."""
        self._started.append(Forked(*words, **options))
        return self._started[-1]
