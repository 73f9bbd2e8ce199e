"""How much one connection may ask for: calls at once, and calls begun in a while."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

AT_ONCE = 128
"""Calls of one connection at a time. A learner needs two, a sidecar one for each learner and some
for their heartbeats."""

PER_S = 300.0
"""Calls that one connection may begin each second, in the long run: far beyond heartbeats, looks
and appends. At this pace it is refused, too: a call costs a service up to half a millisecond,
whatever the answer, and others should not notice (``benchmarks/floods.py``)."""

BURST = 128.0
"""Calls that it may begin at once after a pause: all that it may have at a time."""

REMEMBERED = 4096
"""Connections without a call whose pace is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call is one too many, and when to say so."""

    reason: str
    after_s: float
    """Seconds until it is the call's turn: whoever calls without end waits, and others do not."""


@dataclass(slots=True)
class _Pace:
    """A token bucket, and the calls that go on."""

    tokens: float
    """Less than none when refusals wait for their turn."""
    at: float
    """Seconds of the loop's clock when ``tokens`` was right."""
    running: int = 0


class Limits:
    """Counts the calls of each connection; what it remembers is bounded."""

    def __init__(self) -> None:
        self._paces: OrderedDict[str, _Pace] = OrderedDict()

    def begin(self, peer: str, *, now: float) -> Refusal | None:
        """Count a call in, unless it is one too many.

        Every call takes a token, refused ones too: who is over the rate stays so until it pauses.

        Args:
            peer: Names the connection.
            now: Seconds of a clock that never goes back.
        """
        pace = self._paces.setdefault(peer, _Pace(BURST, now))
        self._paces.move_to_end(peer)
        pace.tokens = min(BURST, pace.tokens + (now - pace.at) * PER_S) - 1.0
        pace.at = now
        after_s = max(0.0, -pace.tokens / PER_S)
        if pace.running >= AT_ONCE:
            return Refusal(reason=f"more than {AT_ONCE} calls at once", after_s=after_s)
        if after_s > 0.0:
            return Refusal(reason=f"more than {PER_S:.0f} calls a second", after_s=after_s)
        pace.running += 1
        return None

    def end(self, peer: str) -> None:
        """Count a call out; connections that have been idle longest are forgotten."""
        self._paces[peer].running -= 1
        surplus = len(self._paces) - REMEMBERED
        if surplus > 0:
            idle = (each for each, pace in self._paces.items() if not pace.running)
            for each in list(islice(idle, surplus)):
                del self._paces[each]
