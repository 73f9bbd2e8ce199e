"""Run coroutines until the first one finishes, and calls on a thread or on the event loop."""

import asyncio
import threading
from math import inf

import pytest

from fullrank.host import process
from fullrank.host.process import QuickCalls, first


class Endless:
    """Wait for ever and record cancellation."""

    def __init__(self) -> None:
        self.cancelled = False

    async def __call__(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def fail() -> None:
    raise ValueError("flawed")


async def test_the_first_end_cancels_the_others() -> None:
    other = Endless()
    await first(asyncio.sleep(0), other())
    assert other.cancelled


async def test_the_first_failure_is_raised_and_cancels_the_others() -> None:
    other = Endless()
    with pytest.raises(ValueError, match="flawed"):
        await first(other(), fail())
    assert other.cancelled


async def test_a_future_that_fails_ends_all() -> None:
    expelled: asyncio.Future[None] = asyncio.Future()
    other = Endless()
    asyncio.get_running_loop().call_soon(expelled.set_exception, ValueError("out"))
    with pytest.raises(ValueError, match="out"):
        await first(other(), expelled)
    assert other.cancelled


async def test_being_cancelled_cancels_all() -> None:
    inner = [Endless(), Endless()]
    task = asyncio.create_task(first(*(each() for each in inner)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(each.cancelled for each in inner)


async def test_of_failures_at_once_that_of_the_one_given_first_is_raised() -> None:
    failed: list[asyncio.Future[None]] = [asyncio.Future() for _ in range(8)]
    for number, future in enumerate(failed):
        future.set_exception(ValueError(f"number {number}"))
    with pytest.raises(ValueError, match="number 0"):
        await first(*failed)


async def on_event_loop(calls: QuickCalls) -> bool:
    """Return whether a call is made on the thread of the event loop."""
    return await calls.call(threading.current_thread) is threading.current_thread()


@pytest.mark.parametrize(("quick_s", "moves"), [(inf, True), (0.0, False)])
async def test_calls_leave_their_thread_once_one_was_quick(
    quick_s: float, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "QUICK_S", quick_s)
    calls = QuickCalls()
    assert [await on_event_loop(calls) for _ in range(3)] == [False, moves, moves]


async def test_a_call_on_the_event_loop_has_its_result_before_anything_else_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "QUICK_S", inf)
    calls = QuickCalls()
    await calls.call(lambda: 6)
    second = calls.call(lambda: 7)
    assert second.done()
    assert second.result() == 7


async def test_the_error_of_a_call_is_raised_wherever_it_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "QUICK_S", inf)
    calls = QuickCalls()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await calls.call(lambda: 1 // 0)
