"""Bare gRPC streams that carry the bytes of a round between the same number of processes."""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import grpc

from fullrank.net.codec import CHUNK_BYTES
from fullrank.v1.tensor_pb2 import Chunk

MARK = b"\1"
"""Last byte of an answer."""
DEFAULTS = [("grpc.so_reuseport", 0)]
SAMPLE_BYTES = 4 * 832
"""Size of a minibatch of one transition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A workload for bare streams."""

    protobuf: bool
    """Encode protobuf messages with a ``bytes`` field for every stream; else send raw bytes."""
    rounds: int
    share: int
    """Bytes to each client in a round."""
    answer: int
    """Bytes from each client in a round."""
    clients: int

    def encode(self) -> Callable[[bytes], bytes] | None:
        """Serialiser of a stream, None for raw bytes."""
        return (lambda data: Chunk(data=data).SerializeToString()) if self.protobuf else None

    def decode(self) -> Callable[[bytes], bytes] | None:
        """Deserialiser of a stream, None for raw bytes."""
        return (lambda message: Chunk.FromString(message).data) if self.protobuf else None


def bare(load: Bare) -> float:
    """Median seconds of a round of the same bytes over bare streams."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    servers = [
        context.Process(target=_bare_server, args=(pipes[0][1], load, False)),
        context.Process(target=_bare_server, args=(pipes[1][1], load, True)),
    ]
    for server in servers:
        server.start()
    ports = [parent.recv() for parent, _ in pipes]
    clients = [
        context.Process(target=_bare_client, args=(*ports, load)) for _ in range(load.clients)
    ]
    for client in clients:
        client.start()
    times: list[float] = pipes[0][0].recv()
    for process in (*clients, *servers):
        process.join()
    return median(times[load.rounds // 10 :])


def _pieces(total: int) -> list[bytes]:
    """Cut ``total`` bytes into messages as a round does; the last one ends with a mark."""
    chunks = [bytes(min(CHUNK_BYTES, total - start)) for start in range(0, total, CHUNK_BYTES)]
    return [*chunks[:-1], chunks[-1][:-1] + MARK]


def _bare_server(pipe: Connection, load: Bare, echo: bool) -> None:
    asyncio.run(_serve_echo(pipe, load) if echo else _serve_rounds(pipe, load))


async def _listen(load: Bare, work: Callable[..., Any]) -> tuple[Any, int]:
    server = grpc.aio.server(options=DEFAULTS)
    handler = grpc.stream_stream_rpc_method_handler(
        work, request_deserializer=load.decode(), response_serializer=load.encode()
    )
    generic = grpc.method_handlers_generic_handler("Bare", {"Work": handler})
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def _serve_echo(pipe: Connection, load: Bare) -> None:
    """Stand in for replay: answer each small request with a small message."""
    left = asyncio.Semaphore(0)

    async def work(requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            async for request in requests:
                await context.write(request)
        finally:  # also where the client has gone before its stream was closed
            left.release()

    server, port = await _listen(load, work)
    pipe.send(port)
    for _ in range(load.clients):
        await left.acquire()
    await server.stop(1.0)


async def _serve_rounds(pipe: Connection, load: Bare) -> None:
    """Stand in for the controller: write a share to every stream, read every answer."""
    ready, finished = asyncio.Semaphore(0), asyncio.Semaphore(0)
    turns = [asyncio.Event() for _ in range(load.rounds)]
    pieces = _pieces(load.share)

    async def work(requests: AsyncIterator[bytes], context: Any) -> None:
        ready.release()
        for turn in turns:
            await turn.wait()
            for piece in pieces:
                await context.write(piece)
            while not (await anext(requests)).endswith(MARK):
                pass
            finished.release()
        await anext(requests, None)

    server, port = await _listen(load, work)
    pipe.send(port)
    for _ in range(load.clients):
        await ready.acquire()
    times = []
    for turn in turns:
        started = time.perf_counter()
        turn.set()
        for _ in range(load.clients):
            await finished.acquire()
        times.append(time.perf_counter() - started)
    pipe.send(times)
    await server.stop(1.0)


def _bare_client(port: int, echo: int, load: Bare) -> None:
    asyncio.run(_dial_bare(port, echo, load))


async def _dial_bare(port: int, echo: int, load: Bare) -> None:
    """Stand in for a learner: read a share, fetch a small minibatch, answer."""
    expected, pieces = len(_pieces(load.share)), _pieces(load.answer)
    coders = {"request_serializer": load.encode(), "response_deserializer": load.decode()}
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=DEFAULTS) as channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{echo}", options=DEFAULTS) as other,
    ):
        call: Any = channel.stream_stream("/Bare/Work", **coders)()
        samples: Any = other.stream_stream("/Bare/Work", **coders)()
        for _ in range(load.rounds):
            for _ in range(expected):
                await call.read()
            await samples.write(bytes(SAMPLE_BYTES))
            await samples.read()
            for piece in pieces:
                await call.write(piece)
        await samples.done_writing()
        await call.done_writing()
        await call.read()
