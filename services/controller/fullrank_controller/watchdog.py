"""Nothing hangs in silence: what takes far longer than ever ends the process, with its stacks.

Waiting for learners is not watched here, for it has deadlines and policies of its own. The watchdog
is a thread, since the event loop itself may be stuck, and it ends the process at once, since a
thread that is stuck cannot be ended: the journal makes that as harmless as any crash.
"""

import faulthandler
import logging
import os
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from fullrank.common.deadlines import limit_s
from fullrank.common.errors import Stuck

log = logging.getLogger(__name__)

FACTOR = 20.0
"""A phase may take so many times what it took before."""
LOOK_S = 0.2
"""Between two looks."""
LONGEST_LOOK_S = 1.0
"""Whoever looks away for longer was frozen with all others: that time counts for nobody."""


class Watchdog:
    """Watches named phases while it is entered.

    Args:
        stacks: File that gets the stacks of all threads.
        where: Tells, in a few words, how far the run is and who takes part.
        least_s: No phase is stuck earlier.
        most_s: Every phase is stuck then, also one that was never measured.
        end: Ends the process with an exit code.
    """

    def __init__(
        self,
        stacks: Path,
        *,
        where: Callable[[], str],
        least_s: float,
        most_s: float,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._stacks, self._where, self._end = stacks, where, end
        self._least_s, self._most_s = least_s, most_s
        self._awake_s = 0.0
        self._since: dict[str, float] = {}
        """Phases that go on, with the time awake when they began."""
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
        """Watch what is done within; its time counts for later ones of that name."""
        self._since[name], started = self._awake_s, time.monotonic()
        try:
            yield
        finally:
            del self._since[name]
            self._measured[name].append(time.monotonic() - started)

    def _watch(self) -> None:
        looked_at = time.monotonic()
        while not self._stopped.wait(LOOK_S):
            now = time.monotonic()
            self._awake_s += min(now - looked_at, LONGEST_LOOK_S)
            looked_at = now
            for name, since in list(self._since.items()):
                if self._awake_s - since > self._may_s(name):
                    self._bite(name, self._awake_s - since)
                    return

    def _may_s(self, name: str) -> float:
        may_s = limit_s(
            list(self._measured[name]),
            factor=FACTOR,
            least_s=self._least_s,
            unmeasured_s=self._most_s,
        )
        return min(self._most_s, may_s)

    def _bite(self, name: str, seconds: float) -> None:
        with self._stacks.open("w") as file:
            faulthandler.dump_traceback(file)
        error = Stuck(
            f"{name} has taken {seconds:.1f} s; {self._where()}; see {self._stacks} for what it is "
            "doing, and resume the run"
        )
        log.critical("stuck %s", error)
        print(f"fullrank: {error}", file=sys.stderr, flush=True)
        self._end(error.exit_code)
