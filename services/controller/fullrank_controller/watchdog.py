"""Abort with a stack dump when a phase takes far longer than it ever has.

Waiting for learners is not watched: it has deadlines and policies of its own. The watchdog is a
thread, because the event loop itself may be stuck, and it ends the process at once, because a stuck
thread cannot be ended; the journal makes that as harmless as any crash.
"""

import faulthandler
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from fullrank.common.deadlines import limit_s
from fullrank.common.errors import Stuck
from fullrank.net.prometheus import Buckets

log = logging.getLogger(__name__)

WRITING = {"journal": "writing", "checkpoint": "writing a checkpoint"}
"""Phases in which the store writes, by what it writes."""
FACTOR = 20.0
"""Multiple of its past durations that a phase may take."""
CHECK_S = 0.2
"""Interval between two checks."""
LONGEST_CHECK_S = 1.0
"""Longer intervals mean that the whole process was frozen; the excess is not counted."""


class Watchdog:
    """Watch named phases while it is entered.

    Args:
        stacks: File for the stacks of all threads.
        where: Returns the call of an environment that is under way, if there is one, progress and
            learners of the run, for the message.
        least_s: Shortest limit of a phase.
        most_s: Longest limit of a phase, which also holds for one that was never measured.
        end: Ends the process at once, for the given reason.

    Attributes:
        durations: How long each phase has taken, by its name.
    """

    def __init__(
        self,
        stacks: Path,
        *,
        where: Callable[[], str],
        least_s: float,
        most_s: float,
        end: Callable[[Stuck], object],
    ) -> None:
        self._stacks, self._where, self._end = stacks, where, end
        self._least_s, self._most_s = least_s, most_s
        self._awake_s = 0.0
        self._since: dict[object, tuple[str, float]] = {}
        """Phases under way, of which some may overlap: name, and awake time at the beginning."""
        self.durations: defaultdict[str, Buckets] = defaultdict(Buckets)
        self._measured: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=200))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Watch the body; its duration counts for later phases of the same name."""
        key, started = object(), time.monotonic()
        self._since[key] = name, self._awake_s
        try:
            yield
        finally:
            del self._since[key]
            seconds = time.monotonic() - started
            self._measured[name].append(seconds)
            self.durations[name].add(seconds)

    def _watch(self) -> None:
        checked_at = time.monotonic()
        while not self._stopped.wait(CHECK_S):
            now = time.monotonic()
            self._awake_s += min(now - checked_at, LONGEST_CHECK_S)
            checked_at = now
            for name, since in list(self._since.values()):
                if self._awake_s - since > self._limit_s(name):
                    self._abort(name, self._awake_s - since)
                    return

    def _limit_s(self, name: str) -> float:
        measured_limit_s = limit_s(
            list(self._measured[name]),
            factor=FACTOR,
            least_s=self._least_s,
            unmeasured_s=self._most_s,
        )
        return min(self._most_s, measured_limit_s)

    def _abort(self, name: str, seconds: float) -> None:
        with self._stacks.open("w") as file:
            faulthandler.dump_traceback(file)
        error = Stuck(
            f"{name} has taken {seconds:.1f} s; {self._where()}; see {self._stacks} for what it is "
            "doing, and resume the run, with a higher controller.deadline_s if it is only slow"
        )
        log.critical("stuck %s", error)
        self._end(error)
