"""Limits of calls by connection and by network address, of lines in the log, and of silence."""

import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice
from math import inf

from fullrank.common.deadlines import FACTOR, limit_s
from fullrank.config.tree import ControllerSettings

AT_ONCE = 128
"""Concurrent calls of one connection. A learner needs two, a sidecar one for each learner and some
for their heartbeats."""

PER_S = 300.0
"""Calls that one connection may begin each second in the long run: far more than heartbeats, status
calls and appends need. Refusals are paced at the same rate, because any call costs a service up to
half a millisecond (``benchmarks/floods.py``)."""

BURST = 128.0
"""Calls that it may begin at once after a pause."""

ADDRESS_AT_ONCE = 1024
"""Concurrent calls of one network address: two for each of 256 learners, and as many spare."""

ADDRESS_PER_S = 600.0
"""Calls that one address may begin each second in the long run, over all its connections."""

ADDRESS_BURST = 1024.0
"""Calls that it may begin at once after a pause."""

ADDRESS_REFUSED_PER_S = 100.0
"""Pace of refusals to one address, so that a flood over many connections costs no more than one
over a single connection."""

WAITING_S = 4 * ADDRESS_AT_ONCE / ADDRESS_REFUSED_PER_S
"""Longest delay of a refusal; beyond it further ones are answered at once, since a service has a
limited number of calls in all."""

REMEMBERED = 4096
"""Idle connections, and addresses, whose rates are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRefusal:
    """Refusal of a call beyond the limits."""

    reason: str
    after_s: float
    """Seconds to delay the refusal, so that a flood slows only its sender."""


@dataclass(slots=True)
class _Bucket:
    """A token bucket; what it lacks delays its caller."""

    rate: float
    """Tokens that arrive in a second."""
    most: float
    at: float
    """Time of the loop's clock at which ``tokens`` was valid, seconds."""
    tokens: float = 0.0
    """Negative while calls are delayed."""

    def __post_init__(self) -> None:
        self.tokens = self.most

    def draw(self, now: float, *, most_s: float = inf) -> float | None:
        """Take a token and return the seconds until it has arrived; none beyond ``most_s``."""
        tokens = min(self.most, self.tokens + (now - self.at) * self.rate) - 1.0
        after_s = max(0.0, -tokens / self.rate)
        if after_s > most_s:
            return None
        self.tokens, self.at = tokens, now
        return after_s


@dataclass(slots=True)
class _Caller:
    """The pace of a connection or an address, and its calls in progress."""

    pace: _Bucket
    refusals: _Bucket
    running: int = 0


class Limits:
    """Counts the calls of each connection and each network address, in bounded memory."""

    def __init__(self) -> None:
        self._connections: OrderedDict[str, _Caller] = OrderedDict()
        self._addresses: OrderedDict[str, _Caller] = OrderedDict()

    def begin(self, peer: str, *, now: float, urgent: bool = False) -> CallRefusal | None:
        """Count a call in, unless it exceeds a limit.

        Refused calls take tokens of their connection, too: one over its rate stays so until it
        pauses. They take none of their address, which others may share.

        Args:
            peer: Names the connection, as ``address:port``.
            now: Monotonic time, seconds.
            urgent: True for a call that the limits of an address must not delay, because others at
                that address would take a lease away.
        """
        connection = _caller(self._connections, peer, PER_S, BURST, now)
        address = _caller(self._addresses, _address(peer), ADDRESS_PER_S, ADDRESS_BURST, now)
        after_s = connection.pace.draw(now) or 0.0
        reason = ""
        if connection.running >= AT_ONCE:
            reason = f"more than {AT_ONCE} calls at once on one connection"
        elif after_s > 0.0:
            reason = f"more than {PER_S:.0f} calls a second on one connection"
        elif urgent:
            pass
        elif address.running >= ADDRESS_AT_ONCE:
            reason = f"more than {ADDRESS_AT_ONCE} calls at once from one address"
        elif address.pace.draw(now, most_s=0.0) is None:
            reason = f"more than {ADDRESS_PER_S:.0f} calls a second from one address"
        if reason:
            turn_s = address.refusals.draw(now, most_s=WAITING_S) or 0.0
            return CallRefusal(reason=reason, after_s=max(after_s, turn_s))
        connection.running += 1
        address.running += 1
        return None

    def end(self, peer: str) -> None:
        """Count a call out; the callers that have been idle longest are forgotten."""
        self._connections[peer].running -= 1
        self._addresses[_address(peer)].running -= 1
        for callers in (self._connections, self._addresses):
            surplus = len(callers) - REMEMBERED
            if surplus > 0:
                idle = (name for name, caller in callers.items() if not caller.running)
                for forgotten in list(islice(idle, surplus)):
                    del callers[forgotten]


class LogPace:
    """Admits one line to the log every so often, so that strangers cannot fill a disk.

    Args:
        period_s: Shortest time between two lines, seconds.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._next_s, self._unsaid = -math.inf, 0

    def admit(self, *, now: float) -> int | None:
        """Return the number of lines kept back since the last one, or None to keep this one back.

        Args:
            now: Monotonic time, seconds.
        """
        if now < self._next_s:
            self._unsaid += 1
            return None
        self._next_s, unsaid, self._unsaid = now + self._period_s, self._unsaid, 0
        return unsaid


def _address(peer: str) -> str:
    return peer.rpartition(":")[0]


def _caller(
    callers: OrderedDict[str, _Caller], name: str, rate: float, burst: float, now: float
) -> _Caller:
    """The state of a caller, as the one that called last."""
    if name not in callers:
        refusals = _Bucket(ADDRESS_REFUSED_PER_S, BURST, now)
        callers[name] = _Caller(_Bucket(rate, burst, now), refusals)
    callers.move_to_end(name)
    return callers[name]


KEPT = 64
"""Intervals that count."""


class Silence:
    """The silence of one peer, and its limit.

    A peer on a starved host is heard late, again and again: its limit grows with its intervals.
    Until some are measured it is as patient as the first rounds, or ``lost_after_s`` if longer.

    Args:
        settings: Bounds of the limit.
        now: Time of a monotonic clock, seconds.
    """

    def __init__(self, settings: ControllerSettings, *, now: float) -> None:
        self._settings, self._heard_at = settings, now
        self._intervals_s: deque[float] = deque(maxlen=KEPT)

    def heard(self, *, now: float) -> None:
        """Record a sign of life that is sent every ``heartbeat_s``."""
        self._intervals_s.append(now - self._heard_at)
        self._heard_at = now

    @property
    def latest_s(self) -> float:
        """The latest interval, seconds; 0 before the first."""
        return self._intervals_s[-1] if self._intervals_s else 0.0

    @property
    def limit_s(self) -> float:
        """Seconds of silence after which the peer counts as lost."""
        return limit_s(
            self._intervals_s,
            factor=FACTOR,
            least_s=self._settings.lost_after_s,
            unmeasured_s=max(self._settings.lost_after_s, self._settings.deadline_s),
        )
