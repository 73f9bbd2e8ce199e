"""A service process: its thread pool and its handling of signals."""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from tests.signals import holds
from tests.waiting import WAIT_S

from fullrank.config import load
from fullrank.host import process
from fullrank.host.process import STOPPING, THREADS, ignore_signals, run


@pytest.fixture
def restored_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_service_has_as_many_threads_at_its_end_as_at_its_beginning() -> None:
    counts: list[int] = []

    def started() -> int:
        return len(set(threading.enumerate()) - before)

    async def serving() -> None:
        counts.append(started())
        await asyncio.gather(*(asyncio.to_thread(threading.get_ident) for _ in range(3 * THREADS)))
        counts.append(started())

    before = set(threading.enumerate())  # those of other tests may end meanwhile
    run(serving())
    assert counts == [THREADS] * 2
    assert started() == 0


IMPORTS_SCIPY_LATE = """
from fullrank.config import load
from fullrank.host.process import Launch, tune_process
tune_process(Launch(resolved=load(overrides=["compute.threads=1"])))
import scipy.linalg
from threadpoolctl import threadpool_info
print(*[each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"])
"""


def test_a_blas_that_is_loaded_late_has_the_configured_number_of_threads() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    told = subprocess.check_output(
        [sys.executable, "-c", IMPORTS_SCIPY_LATE], env=environment, text=True, timeout=WAIT_S
    )
    threads = told.split()
    assert len(threads) >= 2
    assert set(threads) == {"1"}


@pytest.mark.usefixtures("restored_handlers")
def test_ignored_signals_are_not_delivered_and_earlier_ones_are_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[int] = []
    ending: list[partial[object]] = []
    monkeypatch.setattr(atexit, "register", lambda *call: ending.append(partial(*call)))
    for number in STOPPING:
        signal.signal(number, lambda number, _: heard.append(number))
    ignore_signals()
    assert all(holds("SigIgn", number) for number in STOPPING)
    for number in STOPPING:
        signal.raise_signal(number)
        assert callable(signal.getsignal(number))  # for signals that are still pending
    assert heard == []
    for call in ending:
        call()
    assert [signal.getsignal(number) for number in STOPPING] == [signal.SIG_IGN] * 3


@pytest.mark.usefixtures("restored_handlers")
async def test_a_process_whose_parent_has_died_ends_even_if_its_event_loop_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, ended = threading.Event(), threading.Event()
    given: list[int] = []

    def end(code: int) -> None:
        given.append(code)
        ended.set()

    monkeypatch.setattr(process, "ignore_signals", told.set)
    monkeypatch.setattr(process, "GRACE_S", 0.0)
    monkeypatch.setattr("fullrank.host.process.os._exit", end)
    pipe, held = os.pipe()
    event = process.stop_event(process.Launch(resolved=load(), supervisor=pipe))
    os.close(held)
    assert ended.wait(WAIT_S)  # this coroutine does not give way to the event loop meanwhile
    assert told.wait(WAIT_S)
    assert given == [process.ORPHANED]
    await event.wait()
    os.close(pipe)
