"""How much one connection may ask for: calls at once, and calls begun in a while."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

AT_ONCE = 1024
"""Calls of one connection at a time. A learner needs two, a sidecar two for each learner."""

PER_S = 1000.0
"""Calls that one connection may begin each second, in the long run: far beyond heartbeats, looks
and appends."""

BURST = 2000.0
"""Calls that it may begin at once after a pause."""

REFUSED_PER_S = 500.0
"""Calls that one connection is refused each second, one after the other: whoever calls without end
waits for it, and others do not."""

REMEMBERED = 4096
"""Connections without a call whose pace is remembered."""


@dataclass(slots=True)
class _Pace:
    """A token bucket, and the calls that go on."""

    tokens: float
    at: float
    """Seconds of the loop's clock when ``tokens`` was right."""
    running: int = 0
    refused_until: float = 0.0
    """When the last refusal is said, or was."""


class Limits:
    """Counts the calls of each connection; what it remembers is bounded."""

    def __init__(self) -> None:
        self._paces: OrderedDict[str, _Pace] = OrderedDict()

    def begin(self, peer: str, *, now: float) -> str:
        """Count a call in; if it is one too many, it is not counted and the answer says why.

        Args:
            peer: Names the connection.
            now: Seconds of a clock that never goes back.
        """
        pace = self._paces.setdefault(peer, _Pace(BURST, now))
        self._paces.move_to_end(peer)
        pace.tokens = min(BURST, pace.tokens + (now - pace.at) * PER_S)
        pace.at = now
        if pace.running >= AT_ONCE:
            return f"more than {AT_ONCE} calls at once"
        if pace.tokens < 1.0:
            return f"more than {PER_S:.0f} calls a second"
        pace.tokens -= 1.0
        pace.running += 1
        return ""

    def refuse_after(self, peer: str, *, now: float) -> float:
        """Seconds to wait before a call is refused, so that refusals keep their pace."""
        pace = self._paces[peer]
        pace.refused_until = max(pace.refused_until, now) + 1.0 / REFUSED_PER_S
        return pace.refused_until - now

    def end(self, peer: str) -> None:
        """Count a call out; connections that have been idle longest are forgotten."""
        self._paces[peer].running -= 1
        surplus = len(self._paces) - REMEMBERED
        if surplus > 0:
            idle = (each for each, pace in self._paces.items() if not pace.running)
            for each in list(islice(idle, surplus)):
                del self._paces[each]
