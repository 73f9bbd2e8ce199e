"""Claim: while a service is flooded, what others ask of it takes at most twice as long.

Replay, with rows of the default run, and a controller that waits for learners. One process floods
one of them over a connection of its own: with messages of 64 MiB, with metadata or with compressed
messages that it does not take, or with as many calls at once as it can make. A client asks replay
for minibatches, or the controller for its status, one after the other. Turns with a flood and
without follow one another, and the 99th percentiles of what the client waited in them are compared.
A flood begins with the first call that is refused: calls without number are served for a burst
before. It yields the processor to the others, as if it came from another machine.

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
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from fullrank.config import load
from fullrank.replay import TABLE, Sample
from fullrank.rpc.channel import UNLIMITED
from fullrank.rpc.clients import ControllerClient, ReplayClient
from fullrank.rpc.limits import AT_ONCE
from fullrank.rpc.messages import sample_message
from fullrank.rpc.server import METADATA_BYTES
from fullrank.types import Tenure
from local_services import announced, start

CLAIM = 2.0
ROWS, ROW_SIZE, BATCH = 5_000, 132, 1024
PAUSE_S = 2e-3
"""Between two things that the client asks for."""
LARGE = bytes(64 * 2**20)
METHODS = {
    "replay": "/fullrank.v1.ReplayService/Append",
    "controller": "/fullrank.v1.ControllerService/GetStatus",
}
FLOODS: dict[str, dict[str, Any]] = {
    "messages of 64 MiB": {"request": LARGE},
    "too much metadata": {"metadata": (("x", "y" * METADATA_BYTES),), "at_once": 64},
    "compressed messages": {"request": LARGE, "compression": grpc.Compression.Gzip},
    "calls without number": {"at_once": 2 * AT_ONCE},
}


async def flood(
    address: str,
    method: str,
    begun: Event,
    *,
    request: bytes = b"",
    at_once: int = 1,
    compression: grpc.Compression = grpc.Compression.NoCompression,
    metadata: tuple[tuple[str, str], ...] = (),
) -> None:
    """Call again and again, whatever the answer."""
    async with grpc.aio.insecure_channel(address, options=UNLIMITED) as channel:
        call: Any = channel.unary_unary(method)

        async def insist() -> None:
            while True:
                code = await call(request, metadata=metadata, compression=compression).code()
                if code is not grpc.StatusCode.OK:
                    begun.set()

        await asyncio.gather(*(insist() for _ in range(at_once)))


def flooding(address: str, service: str, kind: str, begun: Event) -> None:
    """A process that floods."""
    os.nice(19)
    asyncio.run(flood(address, METHODS[service], begun, **FLOODS[kind]))


@contextmanager
def flooded(address: str, service: str, kind: str) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=flooding, args=(address, service, kind, begun), daemon=True)
    process.start()
    begun.wait()
    yield
    process.terminate()
    process.join()


async def waits(ask: Callable[[int], Awaitable[object]], first: int, calls: int) -> list[float]:
    """What each of so many calls took, seconds."""
    found = []
    for number in range(first, first + calls):
        started = time.perf_counter()
        await ask(number)
        found.append(time.perf_counter() - started)
        await asyncio.sleep(PAUSE_S)
    return found


async def client_of(service: str, address: str) -> Callable[[int], Awaitable[object]]:
    """What another client asks for, by a number."""
    if service == "controller":
        controller = ControllerClient(address)
        return lambda number: controller.status()
    replay, out = ReplayClient(address, deadline_s=60.0), np.empty((BATCH, ROW_SIZE), np.float32)
    await replay.open_table(row_size=ROW_SIZE, capacity=ROWS, head=0, tenure=Tenure("run", 1))
    await replay.append(0, np.ones((ROWS, ROW_SIZE), np.float32))

    def minibatch(number: int) -> Awaitable[object]:
        sample = Sample(table=TABLE, seed=0, iteration=number, tail=0, head=ROWS, size=BATCH)
        return replay.get_sample(sample_message(sample), out)

    return minibatch


async def compare(service: str, address: str, turns: int, calls: int) -> bool:
    """Print a line for each flood; whether the claim holds for all."""
    ask = await client_of(service, address)
    await waits(ask, 0, calls)
    number, holds = calls, True
    for kind in FLOODS:
        calm, busy = [], []
        for _ in range(turns):
            calm += await waits(ask, number, calls)
            with flooded(address, service, kind):
                busy += await waits(ask, number + calls, calls)
            number += 2 * calls
        before, beside = (1e3 * float(np.quantile(each, 0.99)) for each in (calm, busy))
        ratio = beside / before
        print(f"| {service} | {kind} | {before:.1f} | {beside:.1f} | {ratio:.1f} |", flush=True)
        holds &= ratio <= CLAIM
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=4, help="with each flood, and without")
    parser.add_argument("--calls", type=int, default=300, help="of the client in a turn")
    options = parser.parse_args()
    print(f"| service | flood | p99 without, ms | p99 with, ms | ratio (<= {CLAIM:.0f}) |")
    print("|---|---|---|---|---|")
    served = [measured(service, options.turns, options.calls) for service in METHODS]
    return int(not all(served))


def measured(service: str, turns: int, calls: int) -> bool:
    """Start what the service needs and flood it; whether the claim holds."""
    settings = load(overrides=["collect.warmup=64", "metrics.sinks=[]"])
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
