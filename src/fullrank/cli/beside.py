"""Greedy returns and those of the references while a run trains, by the process that shows it.

They are played on a thread of their own, from the run's checkpoints, and change none of its bits:
every draw is keyed, and an environment of another package is in a process of its own.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

from fullrank.cli.progress import ProgressView
from fullrank.config.plugins import problem_of
from fullrank.config.tree import RunConfig
from fullrank.environments.base import Environment
from fullrank.environments.processes import EnvironmentProcess
from fullrank.runs.record import IterationRecord

BEGIN_S = 3.0
"""Time from the first return to the first play; shorter runs have none."""
FREE_S = 1.0
"""Work before the share counts, seconds."""


class Stopped(Exception):
    """The run has ended."""


class TimeShare:
    """Keeps the work of a thread within a share of the time, but for its first ``FREE_S``.

    Args:
        share: Largest share, of (0, 1].
        stop: Set to end the work at its next rest.
        clock: Seconds, monotonic.
        worked: CPU seconds of the thread.
    """

    def __init__(
        self,
        share: float,
        stop: threading.Event,
        *,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._stop, self._clock, self._worked = share, stop, clock, worked
        self._began_s, self._before_s = clock(), 0.0

    def begin(self, worked: Callable[[], float] = lambda: 0.0) -> None:
        """Forget the work so far.

        Args:
            worked: CPU seconds of another process, which count as well.
        """
        own = self._worked
        self._worked = lambda: own() + worked()
        self._before_s, self._began_s = self._worked(), self._clock()

    def rest(self, wait_s: float = 0.0) -> None:
        """Wait for at least this time, and until the work so far is within the share.

        Raises:
            Stopped: The work is to end.
        """
        worked_s = self._worked() - self._before_s
        due_s = self._began_s + (worked_s - FREE_S) / self._share
        if self._stop.wait(max(wait_s, due_s - self._clock())):
            raise Stopped


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process so far; 0 once it has ended."""
    try:
        user_s, system_s, *_ = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(user_s + system_s)


class Beside:
    """Plays beside a run, records the returns in ``evaluations.jsonl`` and shows them.

    Args:
        path: Directory of the run.
        config: Its configuration.
        shown: View of the run.
        inside: True if the run trains in this process, whose kernels are those of one device.
    """

    def __init__(
        self, path: Path, config: RunConfig, shown: ProgressView, *, inside: bool = False
    ) -> None:
        self._path, self._shown = path, shown
        self._inside, self._trained = inside, config
        on_host = replace(config.controller, device="cpu")
        self._config = replace(
            config, compute=replace(config.compute, device="cpu"), controller=on_host
        )
        self._stop = threading.Event()
        self._share = TimeShare(config.metrics.greedy_share or 1.0, self._stop)
        self._thread = threading.Thread(target=self._play, name="beside", daemon=True)
        self._environment: Environment | None = None

    def seen(self, records: Iterable[IterationRecord]) -> None:
        """Begin once an episode has ended: where none does, greedy play might have no end."""
        asked = self._config.metrics.greedy_share and self._thread.ident is None
        if asked and any(record.return_mean is not None for record in records):
            self._thread.start()

    def close(self) -> None:
        """Stop playing."""
        self._stop.set()
        if isinstance(self._environment, EnvironmentProcess):
            self._environment.end("the run has ended")
        if self._thread.ident is not None:
            self._thread.join()

    def _play(self) -> None:
        """Play until told to stop; what fails, perhaps in a user's code, ends this alone."""
        if self._stop.wait(BEGIN_S):
            return
        try:
            self._follow()
        except Stopped:
            return
        except Exception as error:
            if not self._stop.is_set():
                self._shown.say(f"no returns without exploration: {error}")

    def _computes_on(self) -> str:
        """Return the kind of device that the run's units are computed on."""
        from fullrank.algorithms.devices import device_of

        accelerated = problem_of(self._config).accelerated
        return device_of(self._trained.compute.device, accelerated=accelerated).type

    def _follow(self) -> None:
        from fullrank.cli.policies import environment_beside, follow  # imports torch

        if self._inside and self._computes_on() != "cpu":
            return
        self._environment = environment_beside(self._config)
        with closing(self._environment) as environment:
            if self._stop.is_set():  # before ``close`` could end it
                raise Stopped
            if isinstance(environment, EnvironmentProcess):
                environment.begin()
                self._share.begin(partial(_cpu_s, environment.pid))
            else:
                self._share.begin()
            follow(self._path, self._config, environment, self._share.rest, self._shown.compare)
