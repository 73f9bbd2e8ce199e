"""A TCP relay between a client and a service that fails as networks do, when it is told to.

It knows nothing of what it carries, so that it works under TLS as well. What it does is for tests,
benchmarks and ``fullrank chaos``; the straggler proxy is the one that reads messages.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any, Self, TypeAlias

import numpy as np

from fullrank.common.errors import ServiceLost
from fullrank.common.seeding import stream
from fullrank.rpc.tasks import first

PIECE_BYTES = 64 * 1024
"""Read at a time."""
STOP_S = 10.0
"""Longest wait for a proxy in a thread to do what it is told."""

End: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Fault: TypeAlias = Callable[["FaultProxy"], None]


def _passing() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Way:
    """How bytes fare in one direction."""

    delay_s: float = 0.0
    """Time that each piece is kept for, seconds."""
    jitter_s: float = 0.0
    """A piece is kept for up to so much less or more, evenly."""
    bytes_per_s: float = 0.0
    """The most that passes; 0 for no limit."""
    _passes: asyncio.Event = field(default_factory=_passing)
    _draws: np.random.Generator = field(default_factory=partial(stream, 0, "jitter"))

    def hold(self) -> None:
        """Keep all bytes, in order, until ``mend``."""
        self._passes.clear()

    def mend(self) -> None:
        """Pass everything on at once."""
        self.delay_s = self.jitter_s = self.bytes_per_s = 0.0
        self._passes.set()

    @property
    def held(self) -> bool:
        """Whether nothing passes."""
        return not self._passes.is_set()

    @property
    def at_once(self) -> int:
        """Bytes that travel together: no more than pass in a second."""
        return max(1, int(self.bytes_per_s)) if self.bytes_per_s else PIECE_BYTES

    async def travel(self, size: int) -> None:
        """Return when so many bytes have arrived."""
        if self.bytes_per_s:
            await asyncio.sleep(size / self.bytes_per_s)
        if self.delay_s:
            drawn_s = self._draws.uniform(-self.jitter_s, self.jitter_s)
            await asyncio.sleep(self.delay_s + drawn_s)
        await self._passes.wait()


class FaultProxy:
    """Listens while it is entered.

    Args:
        target: Says where the service listens, ``host:port``; asked for each connection.

    Attributes:
        address: Where it listens itself, once it is entered.
        up: From clients to the service.
        down: From the service to clients.
        hindered: Connections refused, broken or stranded, and reads that were
            held or lost.
    """

    def __init__(self, target: Callable[[], str]) -> None:
        self.address = ""
        self.up, self.down = Way(), Way()
        self.hindered = 0
        self._target = target
        self._refuses = False
        self._age = 0
        """Connections of an earlier age are stranded."""
        self._ended = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None] | None] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.mend()
        self._refuses = True
        self._ended.set()
        self._break_all()
        await asyncio.gather(*(relay for relay in self._relays if relay), return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection, and each that is begun until ``mend``."""
        self._refuses = True
        self.hindered += len(self._writers)
        self._break_all()

    def strand(self) -> None:
        """Lose what was sent and will be sent on the connections of now, and close none of them.

        So it looks to a peer whose partner's machine lost power. New connections are served.
        """
        self._age += 1
        self.hindered += len(self._writers)

    def hold(self) -> None:
        """Keep all bytes of both directions, connections stay open."""
        self.up.hold()
        self.down.hold()

    def throttle(self, bytes_per_s: float) -> None:
        """Pass so much a second on in either direction."""
        self.up.bytes_per_s = self.down.bytes_per_s = bytes_per_s

    def delay(self, seconds: float, *, jitter_s: float = 0.0) -> None:
        """Keep every piece for so long, up to ``jitter_s`` less or more, in either direction.

        Pieces stay in order, as on TCP.
        """
        self.up.delay_s = self.down.delay_s = seconds
        self.up.jitter_s = self.down.jitter_s = jitter_s

    def mend(self) -> None:
        """No fault any more; what was held is passed on, what was stranded stays lost."""
        self._refuses = False
        self.up.mend()
        self.down.mend()

    def _break_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection's life."""
        relay = asyncio.current_task()
        self._relays.add(relay)
        try:
            host, _, port = self._target().rpartition(":")
            answers, requests = await asyncio.open_connection(host, int(port))
            if self._refuses:
                self.hindered += 1
                requests.transport.abort()
                raise ConnectionRefusedError
        except (OSError, ServiceLost):
            writer.transport.abort()
        else:
            with suppress(OSError):
                await self._converse((reader, writer), (answers, requests))
        finally:
            self._relays.discard(relay)

    async def _converse(self, client: End, service: End) -> None:
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
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        """One direction of a connection, until its sender closes it."""
        age = self._age
        while piece := await reader.read(PIECE_BYTES):
            self.hindered += way.held or age != self._age
            while piece:
                passing, piece = piece[: way.at_once], piece[way.at_once :]
                await way.travel(len(passing))
                if age == self._age:
                    writer.write(passing)
                    await writer.drain()
        if age != self._age:
            await self._ended.wait()


@contextmanager
def in_thread(proxy: FaultProxy) -> Iterator[Callable[[Fault], None]]:
    """Run a proxy beside a program that has no event loop; yields what inflicts a fault on it."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="fault-proxy", daemon=True)
    thread.start()

    async def inflict(fault: Fault) -> None:
        fault(proxy)

    def done(doing: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(doing, loop).result(STOP_S)

    try:
        done(proxy.__aenter__())
        yield lambda fault: done(inflict(fault))
    finally:
        done(proxy.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_S)
        loop.close()
