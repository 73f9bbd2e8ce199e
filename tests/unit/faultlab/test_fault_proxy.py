"""Delays of pieces in a proxy with limited rate and jitter."""

import asyncio

import pytest
from tests.faultlab.fault_proxy import Direction, FaultProxy


async def kept(way: Direction, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds for which each of a thousand pieces is held; the test does not sleep."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        for _ in range(1000):
            await way.travel(1)
    return slept


async def test_pieces_are_kept_as_unsteadily_as_was_asked_and_each_time_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxies = [FaultProxy(str), FaultProxy(str)]
    for proxy in proxies:
        proxy.delay(0.05, jitter_s=0.02)
    first, second = [await kept(proxy.up, monkeypatch) for proxy in proxies]
    assert first == second
    assert 0.03 <= min(first) < 0.031
    assert 0.069 < max(first) <= 0.07


async def test_a_line_that_was_mended_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = FaultProxy(str)
    proxy.delay(0.05, jitter_s=0.02)
    proxy.heal()
    assert await kept(proxy.down, monkeypatch) == []
