"""A connection gets calls up to its limits, and memory for connections is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.rpc import limits
from fullrank.rpc.limits import AT_ONCE, BURST, PER_S, CallRefusal, Limits


def granted(counted: Limits, calls: int, *, now: float) -> int:
    """Number of calls admitted, of ``calls`` that end at once."""
    count = 0
    for _ in range(calls):
        if counted.begin("a", now=now) is None:
            counted.end("a")
            count += 1
    return count


def test_so_many_calls_at_once_and_no_more_until_one_ends() -> None:
    counted = Limits()
    assert not any(counted.begin("a", now=0.0) for _ in range(AT_ONCE))
    refusal = counted.begin("a", now=1.0)
    assert refusal == CallRefusal(reason=f"more than {AT_ONCE} calls at once", after_s=0.0)
    assert counted.begin("b", now=1.0) is None
    counted.end("a")
    assert counted.begin("a", now=1.0) is None


def test_a_burst_is_granted_then_the_rate() -> None:
    counted = Limits()
    assert granted(counted, int(BURST), now=0.0) == BURST
    assert granted(counted, int(BURST), now=0.25) == PER_S / 4
    refusal = counted.begin("a", now=0.25)
    assert refusal is not None
    assert refusal.reason == f"more than {PER_S:.0f} calls a second"
    assert granted(counted, int(2 * BURST), now=1e6) == BURST


@given(st.lists(st.floats(0.0, 0.9), min_size=2, max_size=50))
def test_who_goes_on_calling_beyond_the_rate_is_refused_at_that_rate(pauses: list[float]) -> None:
    counted, now = Limits(), 0.0
    granted(counted, int(BURST), now=now)
    turns = []
    for pause in pauses:
        now += pause / PER_S
        refusal = counted.begin("a", now=now)
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
    counted.begin("busy", now=0.0)
    for number in range(100):
        assert counted.begin(str(number), now=0.0) is None
        counted.end(str(number))
    assert len(counted._paces) == 3
    refusal = counted.begin("busy", now=0.0)
    assert refusal is not None
    assert refusal.reason == "more than 1 calls at once"
    counted.end("busy")
