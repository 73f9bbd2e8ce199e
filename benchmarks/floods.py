"""Claim: a flooded service answers other clients in at most twice their usual time.

The services are replay, with rows of the default run, and a controller that waits for learners. One
process floods one of them over its own connection: with messages of 64 MiB, with metadata or
compressed messages that it rejects, or with as many simultaneous calls as possible. A client asks
replay for minibatches, or the controller for its status, one call after the other. Turns with each
flood and without alternate, and the 99th percentiles of the client's waits are compared. A flood
counts from its first refused call: a burst of calls is served before, and the longest wait until
then stands in a column of its own. The flooding process has idle priority, as if it ran on another
machine; its completed calls are counted. Even so the slowest calls take up to twice as long beside
a process that only computes, so such a process runs in the turns without a flood.

    python benchmarks/floods.py
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import numpy as np

from fullrank.common.types import RunTerm
from fullrank.config import load
from fullrank.net.channel import UNLIMITED
from fullrank.net.controller_client import ControllerClient
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import METADATA_BYTES
from fullrank.replay.samplers import Sample
from fullrank.replay.table import TABLE
from local_services import announced, start

Counter: TypeAlias = "Synchronized[int]"
Ask: TypeAlias = Callable[[], Awaitable[object]]

CLAIM = 2.0
ROWS, ROW_SIZE, BATCH = 5_000, 132, 1024
CONTEXT = multiprocessing.get_context("spawn")
PAUSE_S = 5e-3
"""Pause between two calls of the client, seconds."""
LARGE = bytes(64 * 2**20)
METHODS = {
    "replay": "/fullrank.v1.ReplayService/AcceptBlocks",
    "controller": "/fullrank.v1.ControllerService/GetStatus",
}
FLOODS: dict[str, dict[str, Any]] = {
    "messages of 64 MiB": {"request": LARGE},
    "too much metadata": {"metadata": (("x", "y" * METADATA_BYTES),), "at_once": 64},
    "compressed messages": {"request": LARGE, "compression": grpc.Compression.Gzip},
    "calls without number": {"at_once": 2_000},
}


async def flood(
    address: str,
    method: str,
    begun: Event,
    ended: Counter,
    *,
    request: bytes = b"",
    at_once: int = 1,
    compression: grpc.Compression = grpc.Compression.NoCompression,
    metadata: tuple[tuple[str, str], ...] = (),
) -> None:
    """Call without end, and ignore the answers."""
    async with grpc.aio.insecure_channel(address, options=UNLIMITED) as channel:
        call: Any = channel.unary_unary(method)

        async def insist() -> None:
            while True:
                code = await call(request, metadata=metadata, compression=compression).code()
                ended.value += 1
                if code is not grpc.StatusCode.OK:
                    begun.set()

        await asyncio.gather(*(insist() for _ in range(at_once)))


def yielding() -> None:
    """Run at idle priority only: the lowest normal one would still take time from others."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def flooding(address: str, service: str, kind: str, begun: Event, ended: Counter) -> None:
    """Run as a process that floods."""
    yielding()
    asyncio.run(flood(address, METHODS[service], begun, ended, **FLOODS[kind]))


def computing(begun: Event) -> None:
    """Run as a process that computes and makes no calls."""
    yielding()
    begun.set()
    while True:
        pass


@contextmanager
def beside(target: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Run a function in another process meanwhile."""
    process = CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    yield
    process.terminate()
    process.join()


async def waits(ask: Ask, calls: int) -> list[float]:
    """Measure the waits of so many calls, seconds."""
    times_s = []
    for _ in range(calls):
        started = time.perf_counter()
        await ask()
        times_s.append(time.perf_counter() - started)
        await asyncio.sleep(PAUSE_S)
    return times_s


async def until(begun: Event, ask: Ask) -> list[float]:
    """Measure the waits of calls until the other process has begun, seconds."""
    times_s = []
    while not begun.is_set():
        times_s += await waits(ask, 1)
    return times_s


async def client_of(service: str, address: str) -> Ask:
    """Call that another client makes to the service."""
    if service == "controller":
        return ControllerClient(address).status
    replay = ReplayClient(address, deadline_s=60.0)
    await replay.open_table(row_size=ROW_SIZE, capacity=ROWS, head=0, run_term=RunTerm("run", 1))
    await replay.append(0, np.ones((ROWS, ROW_SIZE), np.float32))

    numbers = count()

    def minibatch() -> Awaitable[object]:
        number = next(numbers)
        sample = Sample(table=TABLE, seed=0, iteration=number, tail=0, head=ROWS, size=BATCH)
        return replay.get_sample(sample_message(sample), row_size=ROW_SIZE)

    return minibatch


class Stretch:
    """Waits of calls while a service is flooded in one way.

    Attributes:
        burst: Waits until the first call of the flood was refused, seconds.
        waits: Waits from then on, seconds.
        ended: Completed calls of the flood.
        lasted_s: Duration of the flood.
    """

    def __init__(self) -> None:
        self.burst: list[float] = []
        self.waits: list[float] = []
        self.ended = 0
        self.lasted_s = 0.0

    async def go_on(self, service: str, address: str, kind: str, ask: Ask, calls: int) -> None:
        """Flood the service once more."""
        begun, counted = CONTEXT.Event(), CONTEXT.Value("L", 0)
        with beside(flooding, address, service, kind, begun, counted):
            self.burst += await until(begun, ask)
            started, first = time.perf_counter(), counted.value
            self.waits += await waits(ask, calls)
            self.lasted_s += time.perf_counter() - started
            self.ended += counted.value - first


async def computed(ask: Ask, calls: int) -> list[float]:
    """Measure the waits of calls without a flood, beside a process that computes."""
    begun = CONTEXT.Event()
    with beside(computing, begun):
        await until(begun, ask)
        return await waits(ask, calls)


def p99_ms(waits: list[float]) -> float:
    return 1e3 * float(np.quantile(waits, 0.99))


async def compare(service: str, address: str, turns: int, calls: int) -> bool:
    """Print a line for each flood; return whether the claim holds for all."""
    ask = await client_of(service, address)
    await waits(ask, calls)
    alone: list[float] = []
    without: list[float] = []
    floods = {kind: Stretch() for kind in FLOODS}
    for _ in range(turns):
        alone += await waits(ask, calls)
        without += await computed(ask, 2 * calls)
        for kind, stretch in floods.items():
            await stretch.go_on(service, address, kind, ask, calls)
    before = p99_ms(without)
    for kind, stretch in floods.items():
        flooded, longest = p99_ms(stretch.waits), 1e3 * max(stretch.burst)
        print(
            f"| {service} | {kind} | {stretch.ended / stretch.lasted_s:.0f} "
            f"| {p99_ms(alone):.1f} | {before:.1f} | {flooded:.1f} | {flooded / before:.1f} "
            f"| {longest:.0f} |",
            flush=True,
        )
    return all(p99_ms(stretch.waits) <= CLAIM * before for stretch in floods.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=6, help="with each flood, and without")
    parser.add_argument("--calls", type=int, default=300, help="of the client in a turn")
    options = parser.parse_args()
    print(
        "| service | flood | its calls, 1/s | p99 alone, ms | p99 without, ms | p99 with, ms "
        f"| ratio (<= {CLAIM:.0f}) | longest before, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    served = [measured(service, options.turns, options.calls) for service in METHODS]
    return int(not all(served))


def measured(service: str, turns: int, calls: int) -> bool:
    """Start and flood a service; return whether the claim holds."""
    ports = [f"{name}.address=127.0.0.1:0" for name in METHODS]  # unix sockets have no limits
    settings = load(overrides=[*ports, "collect.warmup=64", "metrics.sinks=[]"])
    names = ["replay"] if service == "replay" else ["replay", "controller"]
    with tempfile.TemporaryDirectory() as scratch:
        processes = [start(name, settings, Path(scratch)) for name in names]
        try:
            address = announced(Path(scratch), service)
            return asyncio.run(compare(service, address, turns, calls))
        finally:
            for process in processes:
                process.terminate()
                process.join()


if __name__ == "__main__":
    sys.exit(main())
