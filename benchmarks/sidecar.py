"""Claim: a sidecar that injects no delay or fault adds at most 2 ms to a small call.

The same calls to the same peer, directly and through a sidecar in its own process, in turn: a unary
call of 64 bytes, and a stream of messages of 1 MiB in each direction.

    OMP_NUM_THREADS=1 python benchmarks/sidecar.py
"""

import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import grpc

from fullrank.config import load
from fullrank.net.channel import open_channel
from fullrank.net.server import OPTIONS
from local_services import announced, start

CLAIM_S, REPEATS = 2e-3, 3
SMALL, LARGE = bytes(64), bytes(2**20)
CALLS, MESSAGES = 500, 200
METHOD = "/Echo/Echo"


def echo(pipe: Connection) -> None:
    """Run the peer, a process that echoes every message."""
    asyncio.run(_echo(pipe))


async def _echo(pipe: Connection) -> None:
    async def answer(requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(request)

    server = grpc.aio.server(options=OPTIONS)
    handler: Any = grpc.stream_stream_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("Echo", {"Echo": handler}),)
    )
    pipe.send(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    await asyncio.to_thread(pipe.recv)
    await server.stop(None)


async def small(channel: grpc.aio.Channel) -> float:
    """Measure the median seconds of a unary call."""
    call: Any = channel.unary_unary(METHOD)
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await call(SMALL)
        times.append(time.perf_counter() - started)
    return median(times)


async def large(channel: grpc.aio.Channel) -> float:
    """Measure the seconds per message of a stream that goes both ways."""
    method: Any = channel.stream_stream(METHOD)
    started = time.perf_counter()
    async for _ in method(LARGE for _ in range(MESSAGES)):
        pass
    return (time.perf_counter() - started) / MESSAGES


async def both(
    measure: Callable[[grpc.aio.Channel], Awaitable[float]], addresses: Sequence[str]
) -> list[float]:
    """Measure directly and through the sidecar, in turn; return the median of each."""
    async with open_channel(addresses[0]) as direct, open_channel(addresses[1]) as proxied:
        times = [
            [await measure(channel) for channel in (direct, proxied)] for _ in range(REPEATS + 1)
        ]
    return [median(column) for column in zip(*times[1:], strict=True)]  # the first warms up


def calls() -> tuple[list[float], list[float]]:
    """Measure both kinds of call."""
    pipe, other = multiprocessing.Pipe()
    peer = multiprocessing.get_context("spawn").Process(target=echo, args=(other,), daemon=True)
    peer.start()
    with tempfile.TemporaryDirectory() as scratch:
        beyond = pipe.recv()
        settings = load(overrides=[f"controller.address={beyond}", "sidecar.address=127.0.0.1:0"])
        sidecar = start("straggler", settings, Path(scratch))
        try:
            addresses = (beyond, announced(Path(scratch), "straggler"))
            return asyncio.run(both(small, addresses)), asyncio.run(both(large, addresses))
        finally:
            pipe.send(None)
            sidecar.terminate()
            sidecar.join()
            peer.join()


def main() -> int:
    unary, streamed = calls()
    print("| call | direct, ms | through the sidecar, ms | added, ms |")
    print("|---|---|---|---|")
    for name, (direct, proxied) in (
        ("unary call of 64 bytes", unary),
        ("streamed message of 1 MiB, both ways", streamed),
    ):
        figures = (direct, proxied, proxied - direct)
        print(f"| {name} | {' | '.join(f'{1e3 * seconds:.2f}' for seconds in figures)} |")
    return int(unary[1] - unary[0] > CLAIM_S)


if __name__ == "__main__":
    sys.exit(main())
