"""What every service process is started with."""

import asyncio
import threading

from fullrank.rpc.launch import THREADS, run


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
