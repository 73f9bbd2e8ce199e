"""A TCP relay between clients and a service that injects network faults.

It does not read the bytes it carries, so it works under TLS too. Tests, benchmarks and
the fault laboratory use it; the straggler sidecar is the proxy that reads messages.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any, Self, TypeAlias

import numpy as np

from fullrank.common.errors import ServiceLost
from fullrank.common.seeding import stream
from fullrank.host.process import first

PIECE_BYTES = 64 * 1024
"""Bytes read at a time."""
STOP_S = 10.0
"""Longest wait for a command to a proxy in a thread, seconds."""

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
NetworkFault: TypeAlias = Callable[["FaultProxy"], None]


def _passing() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Direction:
    """Faults of one direction."""

    delay_s: float = 0.0
    """Delay of each piece."""
    jitter_s: float = 0.0
    """Half-width of the uniform distribution around the delay."""
    bytes_per_s: float = 0.0
    """Rate limit; 0 for none."""
    _passes: asyncio.Event = field(default_factory=_passing)
    _draws: np.random.Generator = field(default_factory=partial(stream, 0, "jitter"))

    def hold(self) -> None:
        """Hold all bytes, in order, until ``heal``."""
        self._passes.clear()

    def heal(self) -> None:
        """End all faults and pass on held bytes."""
        self.delay_s = self.jitter_s = self.bytes_per_s = 0.0
        self._passes.set()

    @property
    def held(self) -> bool:
        """True while bytes are held."""
        return not self._passes.is_set()

    @property
    def at_once(self) -> int:
        """Bytes passed on together: at most one second of the rate limit."""
        return max(1, int(self.bytes_per_s)) if self.bytes_per_s else PIECE_BYTES

    async def travel(self, size: int) -> None:
        """Wait for the transfer of so many bytes."""
        if self.bytes_per_s:
            await asyncio.sleep(size / self.bytes_per_s)
        if self.delay_s:
            drawn_s = self._draws.uniform(-self.jitter_s, self.jitter_s)
            await asyncio.sleep(self.delay_s + drawn_s)
        await self._passes.wait()


class FaultProxy:
    """A relay that listens on loopback within its context.

    Args:
        target: Returns the service's address, ``host:port``; called for each connection.

    Attributes:
        address: Address of the relay, set on entry.
        up: From clients to the service.
        down: From the service to clients.
        disrupted: Number of connections refused, broken or stranded, and of reads held or lost.
    """

    def __init__(self, target: Callable[[], str]) -> None:
        self.address = ""
        self.up, self.down = Direction(), Direction()
        self.disrupted = 0
        self._target = target
        self._refuses = False
        self._age = 0
        """Number of calls of ``strand``; older connections are stranded."""
        self._ended = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None] | None] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.heal()
        self._refuses = True
        self._ended.set()
        _reset(self._writers)
        await asyncio.gather(*(relay for relay in self._relays if relay), return_exceptions=True)

    def cut(self) -> None:
        """Reset all connections, and new ones until ``heal``."""
        self._refuses = True
        self.disrupted += len(self._writers)
        _reset(self._writers)

    def strand(self) -> None:
        """Drop all bytes of the present connections, in flight or sent later, without closing them.

        A peer sees the same when its partner's machine loses power. New connections are served.
        """
        self._age += 1
        self.disrupted += len(self._writers)

    def hold(self) -> None:
        """Hold all bytes of both directions; connections stay open."""
        self.up.hold()
        self.down.hold()

    def throttle(self, bytes_per_s: float) -> None:
        """Limit the rate of each direction."""
        self.up.bytes_per_s = self.down.bytes_per_s = bytes_per_s

    def delay(self, seconds: float, *, jitter_s: float = 0.0) -> None:
        """Delay every piece in each direction by ``seconds``, plus or minus ``jitter_s``.

        Pieces stay in order.
        """
        self.up.delay_s = self.down.delay_s = seconds
        self.up.jitter_s = self.down.jitter_s = jitter_s

    def heal(self) -> None:
        """End all faults; held bytes are passed on, stranded connections stay dead."""
        self._refuses = False
        self.up.heal()
        self.down.heal()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        relay = asyncio.current_task()
        self._relays.add(relay)
        try:
            host, _, port = self._target().rpartition(":")
            answers, requests = await asyncio.open_connection(host, int(port))
            if self._refuses:
                self.disrupted += 1
                requests.transport.abort()
                raise ConnectionRefusedError
        except (OSError, ServiceLost):
            writer.transport.abort()
        else:
            with suppress(OSError):
                await self._converse((reader, writer), (answers, requests))
        finally:
            self._relays.discard(relay)

    async def _converse(self, client: Connection, service: Connection) -> None:
        writers = {client[1], service[1]}
        self._writers |= writers
        try:
            await first(
                self._carry(client[0], service[1], self.up),
                self._carry(service[0], client[1], self.down),
            )
        finally:
            self._writers -= writers
            for writer in writers:
                writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Relay one direction of a connection until its sender closes it."""
        age = self._age
        while piece := await reader.read(PIECE_BYTES):
            self.disrupted += direction.held or age != self._age
            while piece:
                passing, piece = piece[: direction.at_once], piece[direction.at_once :]
                await direction.travel(len(passing))
                if age == self._age:
                    writer.write(passing)
                    await writer.drain()
        if age != self._age:
            await self._ended.wait()


def _reset(writers: Iterable[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()


@contextmanager
def in_thread(proxy: FaultProxy) -> Iterator[Callable[[NetworkFault], None]]:
    """Run a proxy in a thread with an event loop; yields a function that applies a fault to it."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="fault-proxy", daemon=True)
    thread.start()

    async def apply(fault: NetworkFault) -> None:
        fault(proxy)

    def run(coroutine: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(STOP_S)

    try:
        run(proxy.__aenter__())
        yield lambda fault: run(apply(fault))
    finally:
        run(proxy.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_S)
        loop.close()
