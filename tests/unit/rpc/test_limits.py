"""A connection gets what it may ask for, and what is remembered of it is bounded."""

import pytest

from fullrank.rpc import limits
from fullrank.rpc.limits import AT_ONCE, BURST, PER_S, REFUSED_PER_S, Limits


def test_so_many_calls_at_once_and_no_more_until_one_ends() -> None:
    counted = Limits()
    assert not any(counted.begin("a", now=0.0) for _ in range(AT_ONCE))
    assert counted.begin("a", now=0.0) == f"more than {AT_ONCE} calls at once"
    assert counted.begin("b", now=0.0) == ""
    counted.end("a")
    assert counted.begin("a", now=0.0) == ""


def test_a_burst_is_granted_then_the_rate() -> None:
    counted = Limits()

    def granted(calls: int, now: float) -> int:
        count = 0
        for _ in range(calls):
            if counted.begin("a", now=now) == "":
                counted.end("a")
                count += 1
        return count

    assert granted(int(2 * BURST), 0.0) == BURST
    assert counted.begin("a", now=0.0) == f"more than {PER_S:.0f} calls a second"
    assert granted(int(PER_S), 0.5) == PER_S / 2
    assert granted(int(2 * BURST), 1e6) == BURST


def test_refusals_of_a_connection_keep_their_pace() -> None:
    counted = Limits()
    counted.begin("a", now=0.0)
    pauses = [counted.refuse_after("a", now=7.0) * REFUSED_PER_S for _ in range(3)]
    assert pauses == pytest.approx([1, 2, 3])
    assert counted.refuse_after("a", now=8.0) * REFUSED_PER_S == pytest.approx(1.0)


def test_idle_connections_are_forgotten_and_busy_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REMEMBERED", 3)
    monkeypatch.setattr(limits, "AT_ONCE", 1)
    counted = Limits()
    counted.begin("busy", now=0.0)
    for number in range(100):
        assert counted.begin(str(number), now=0.0) == ""
        counted.end(str(number))
    assert len(counted._paces) == 3
    assert counted.begin("busy", now=0.0) == "more than 1 calls at once"
    counted.end("busy")
