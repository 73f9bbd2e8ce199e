"""What every service process is started with."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fullrank.rpc.launch import STOPPING, THREADS, be_deaf, run


@pytest.fixture
def handlers_kept() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ignores(number: int) -> bool:
    """Whether the system keeps the signal from this process."""
    status = Path("/proc/self/status").read_text()
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> (number - 1) & 1)


def test_a_service_has_as_many_threads_at_its_end_as_at_its_beginning() -> None:
    counts: list[int] = []

    async def serving() -> None:
        counts.append(threading.active_count())
        await asyncio.gather(*(asyncio.to_thread(threading.get_ident) for _ in range(3 * THREADS)))
        counts.append(threading.active_count())

    before = threading.active_count()
    run(serving())
    assert counts == [before + THREADS] * 2
    assert threading.active_count() == before


@pytest.mark.usefixtures("handlers_kept")
def test_no_signal_can_come_any_more_when_its_handler_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    come: dict[int, bool] = {}
    assert not any(map(ignores, STOPPING))
    with monkeypatch.context() as patched:
        patched.setattr(signal, "signal", lambda number, _: come.update({number: ignores(number)}))
        be_deaf()
    assert come == dict.fromkeys(STOPPING, True)
