"""Limits of one connection (concurrent calls, and calls per second), and of lines in the log."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

AT_ONCE = 128
"""Concurrent calls of one connection. A learner needs two, a sidecar one for each learner and some
for their heartbeats."""

PER_S = 300.0
"""Calls that one connection may begin each second in the long run: far more than heartbeats, status
calls and appends need. Refusals are paced at the same rate, because any call costs a service up to
half a millisecond (``benchmarks/floods.py``)."""

BURST = 128.0
"""Calls that it may begin at once after a pause."""

REMEMBERED = 4096
"""Idle connections whose rate is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRefusal:
    """Refusal of a call beyond the limits."""

    reason: str
    after_s: float
    """Seconds to delay the refusal, so that a flood slows only its sender."""


@dataclass(slots=True)
class _Pace:
    """A token bucket, and the calls in progress."""

    tokens: float
    """Negative while refusals are delayed."""
    at: float
    """Time of the loop's clock at which ``tokens`` was valid, seconds."""
    running: int = 0


class Limits:
    """Counts the calls of each connection, in bounded memory."""

    def __init__(self) -> None:
        self._paces: OrderedDict[str, _Pace] = OrderedDict()

    def begin(self, peer: str, *, now: float) -> CallRefusal | None:
        """Count a call in, unless it exceeds a limit.

        Refused calls take tokens too: a connection over its rate stays so until it pauses.

        Args:
            peer: Names the connection.
            now: Monotonic time, seconds.
        """
        pace = self._paces.setdefault(peer, _Pace(BURST, now))
        self._paces.move_to_end(peer)
        pace.tokens = min(BURST, pace.tokens + (now - pace.at) * PER_S) - 1.0
        pace.at = now
        after_s = max(0.0, -pace.tokens / PER_S)
        if pace.running >= AT_ONCE:
            return CallRefusal(reason=f"more than {AT_ONCE} calls at once", after_s=after_s)
        if after_s > 0.0:
            return CallRefusal(reason=f"more than {PER_S:.0f} calls a second", after_s=after_s)
        pace.running += 1
        return None

    def end(self, peer: str) -> None:
        """Count a call out; the connections that have been idle longest are forgotten."""
        self._paces[peer].running -= 1
        surplus = len(self._paces) - REMEMBERED
        if surplus > 0:
            idle = (peer for peer, pace in self._paces.items() if not pace.running)
            for forgotten in list(islice(idle, surplus)):
                del self._paces[forgotten]


class LogPace:
    """Admits one line to the log every so often, so that strangers cannot fill a disk.

    Args:
        period_s: Shortest time between two lines, seconds.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._next_s, self._unsaid = -math.inf, 0

    def take(self, *, now: float) -> int | None:
        """Return the number of lines kept back since the last one, or None to keep this one back.

        Args:
            now: Monotonic time, seconds.
        """
        if now < self._next_s:
            self._unsaid += 1
            return None
        self._next_s, unsaid, self._unsaid = now + self._period_s, self._unsaid, 0
        return unsaid
