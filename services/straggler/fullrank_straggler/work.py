"""One Work stream passed on through its gate: delays, and the faults that need a clock."""

import asyncio
from contextlib import suppress
from math import inf

from fullrank.rpc.tasks import first
from fullrank_straggler.control import Control
from fullrank_straggler.gate import Gate
from fullrank_straggler.injection import Identity
from fullrank_straggler.relay import Context, Relay, Requests, Upstream


class WorkRelay(Relay):
    """Passes a Work stream on, its delayed vectors when they are due.

    Args:
        requests: What the learner sends.
        context: The learner's side.
        call: The controller's side.
        control: What is injected.
    """

    def __init__(
        self, requests: Requests, context: Context, call: Upstream, control: Control
    ) -> None:
        super().__init__(requests, context, call)
        self._control = control
        self._gate = Gate(control.injection)
        self._clock = asyncio.get_running_loop().time
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._change = asyncio.Event()

    @property
    def identity(self) -> Identity | None:
        """Whom it serves, from Welcome on."""
        return self._gate.identity

    def changed(self) -> None:
        """What is injected has changed: what waits may be due, a throttle may be gone."""
        self._wake.set()
        self._change.set()
        self._change = asyncio.Event()

    async def run(self) -> None:
        """Pass everything on, the ending too.

        Raises:
            FullrankError: A fault drops the connection, or the delay model cannot be for this run.
        """
        self._control.attach(self)
        try:
            await first(super().run(), self._until_ended(self._release()))
        finally:
            self._control.detach(self)

    async def _release(self) -> None:
        """Send what is held when it is due."""
        while True:
            due = self._gate.due()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if due == inf else due):
                    await self._wake.wait()
            self._wake.clear()
            await self._drain()

    async def _send(self, message: bytes) -> None:
        self._gate.take(message, now=self._clock())
        await self._drain()
        if self._gate.due() < inf:
            self._wake.set()

    async def _drain(self) -> None:
        """Write what may go on; whoever comes second waits, for a stream takes one at a time."""
        async with self._writing:
            while (message := self._gate.next(now=self._clock())) is not None:
                await self._pace(len(message))
                await super()._send(message)

    async def _receive(self, message: bytes) -> None:
        self._gate.hear(message)
        await self._pace(len(message))
        await super()._receive(message)

    async def _pace(self, size: int) -> None:
        """Take as long as the throttle of now wants for so many bytes."""
        left = float(size)
        while (bytes_per_s := self._gate.bytes_per_s) is not None:
            started = self._clock()
            try:
                async with asyncio.timeout(left / bytes_per_s):
                    await self._change.wait()
            except TimeoutError:
                return
            left -= (self._clock() - started) * bytes_per_s
