"""A connection gets calls up to its limits, and memory for connections is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.net import limits
from fullrank.net.limits import (
    ADDRESS_AT_ONCE,
    ADDRESS_BURST,
    ADDRESS_REFUSED_PER_S,
    AT_ONCE,
    BURST,
    PER_S,
    WAITING_S,
    CallRefusal,
    Limits,
)


def granted(counted: Limits, calls: int, *, now: float) -> int:
    """Number of calls admitted, of ``calls`` that end at once."""
    count = 0
    for _ in range(calls):
        if counted.begin("host:1", now=now) is None:
            counted.end("host:1")
            count += 1
    return count


def test_so_many_calls_at_once_and_no_more_until_one_ends() -> None:
    counted = Limits()
    assert not any(counted.begin("host:1", now=0.0) for _ in range(AT_ONCE))
    refusal = counted.begin("host:1", now=1.0)
    assert refusal == CallRefusal(
        reason=f"more than {AT_ONCE} calls at once on one connection", after_s=0.0
    )
    assert counted.begin("host:2", now=1.0) is None
    counted.end("host:1")
    assert counted.begin("host:1", now=1.0) is None


def test_a_burst_is_granted_then_the_rate() -> None:
    counted = Limits()
    assert granted(counted, int(BURST), now=0.0) == BURST
    assert granted(counted, int(BURST), now=0.25) == PER_S / 4
    refusal = counted.begin("host:1", now=0.25)
    assert refusal is not None
    assert refusal.reason == f"more than {PER_S:.0f} calls a second on one connection"
    assert granted(counted, int(2 * BURST), now=1e6) == BURST


@given(st.lists(st.floats(0.0, 0.9), min_size=2, max_size=50))
def test_who_goes_on_calling_beyond_the_rate_is_refused_at_that_rate(pauses: list[float]) -> None:
    counted, now = Limits(), 0.0
    granted(counted, int(BURST), now=now)
    turns = []
    for pause in pauses:
        now += pause / PER_S
        refusal = counted.begin("host:1", now=now)
        assert refusal is not None
        turns.append((now + refusal.after_s) * PER_S)
    assert turns == pytest.approx(range(1, len(pauses) + 1))


def test_who_called_beyond_the_rate_is_served_again_after_a_pause() -> None:
    counted = Limits()
    granted(counted, int(BURST) + 4, now=0.0)
    assert granted(counted, 1, now=5.5 / PER_S) == 1


def test_idle_connections_are_forgotten_and_busy_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REMEMBERED", 3)
    monkeypatch.setattr(limits, "AT_ONCE", 1)
    counted = Limits()
    counted.begin("host:busy", now=0.0)
    for number in range(100):
        assert counted.begin(f"host:{number}", now=0.0) is None
        counted.end(f"host:{number}")
    assert len(counted._connections) == 3
    refusal = counted.begin("host:busy", now=0.0)
    assert refusal is not None
    assert refusal.reason == "more than 1 calls at once on one connection"
    counted.end("host:busy")


def test_many_connections_of_one_address_have_no_more_calls_than_it() -> None:
    counted, connections = Limits(), ADDRESS_AT_ONCE // 8
    peers = [f"ipv4:10.0.0.7:{number}" for number in range(connections)]
    assert not any(counted.begin(peer, now=0.0) for peer in peers for _ in range(8))
    refusal = counted.begin("ipv4:10.0.0.7:9999", now=10.0)
    assert refusal is not None
    assert refusal.reason == f"more than {ADDRESS_AT_ONCE} calls at once from one address"
    assert counted.begin("ipv4:10.0.0.8:1", now=10.0) is None
    counted.end(peers[0])
    assert counted.begin("ipv4:10.0.0.7:9999", now=10.0) is None


def test_connections_below_their_rate_are_refused_beyond_that_of_their_address() -> None:
    counted, admitted = Limits(), 0
    for number in range(2 * int(ADDRESS_BURST)):
        peer = f"ipv4:10.0.0.7:{number}"
        if counted.begin(peer, now=1.0) is None:
            counted.end(peer)
            admitted += 1
    assert admitted == ADDRESS_BURST
    assert counted.begin("ipv4:10.0.0.7:1", now=2.0) is None, "it has paused"


def test_refusals_to_an_address_are_paced_and_few_wait() -> None:
    counted = Limits()
    for number in range(ADDRESS_AT_ONCE):
        counted.begin(f"ipv4:10.0.0.7:{number}", now=0.0)
    refusals = [counted.begin(f"ipv4:10.0.0.7:{number}", now=0.0) for number in range(3000)]
    waits = [refusal.after_s for refusal in refusals if refusal is not None]
    assert len(waits) == 3000
    assert sorted(wait for wait in waits if wait)[:3] == pytest.approx(
        [number / ADDRESS_REFUSED_PER_S for number in (1, 2, 3)]
    )
    refusals = [counted.begin(f"ipv4:10.0.0.7:{number}", now=0.0) for number in range(3000)]
    waits += [refusal.after_s for refusal in refusals if refusal is not None]
    assert max(waits) <= WAITING_S
    assert waits[-1] == 0.0, "those that wait are enough"


def test_a_heartbeat_is_not_delayed_by_others_at_its_address() -> None:
    counted = Limits()
    for number in range(2 * ADDRESS_AT_ONCE):
        counted.begin(f"ipv4:10.0.0.7:{number}", now=0.0)
    assert counted.begin("ipv4:10.0.0.7:honest", now=0.0) is not None
    assert counted.begin("ipv4:10.0.0.7:honest", now=0.0, urgent=True) is None
