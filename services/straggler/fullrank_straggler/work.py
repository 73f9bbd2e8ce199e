"""Relay of one Work stream through its gate: delays, and faults that need a clock."""

import asyncio
from contextlib import suppress
from math import inf

from fullrank.rpc.errors import Context
from fullrank.rpc.tasks import first
from fullrank_straggler.control import Control
from fullrank_straggler.gate import Gate
from fullrank_straggler.injection import StreamIdentity
from fullrank_straggler.relay import RawMessages, Relay, Upstream


class WorkRelay(Relay):
    """Forwards a Work stream, delayed vectors when they are due.

    Args:
        requests: Messages of the learner.
        context: The learner's side.
        call: The controller's side.
        control: The injection.
    """

    def __init__(
        self, requests: RawMessages, context: Context, call: Upstream, control: Control
    ) -> None:
        super().__init__(requests, context, call)
        self._control = control
        self._gate = Gate(control.injection)
        self._clock = asyncio.get_running_loop().time
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._change = asyncio.Event()

    @property
    def identity(self) -> StreamIdentity | None:
        """Learner that it serves; None before Welcome."""
        return self._gate.identity

    def changed(self) -> None:
        """Handle a change: held vectors may be due, a throttle may be gone."""
        self._wake.set()
        self._change.set()
        self._change = asyncio.Event()

    async def run(self) -> None:
        """Forward everything, including the status.

        Raises:
            FullrankError: A fault drops the connection, or the delay model is impossible here.
        """
        self._control.attach(self)
        try:
            await first(super().run(), self._until_ended(self._release()))
        finally:
            self._control.detach(self)

    async def _release(self) -> None:
        """Send held vectors when they are due."""
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
        """Write the messages that are due, one writer at a time."""
        async with self._writing:
            while (message := self._gate.next(now=self._clock())) is not None:
                await self._pace(len(message))
                await super()._send(message)

    async def _receive(self, message: bytes) -> None:
        self._gate.hear(message)
        await self._pace(len(message))
        await super()._receive(message)

    async def _pace(self, size: int) -> None:
        """Sleep for as long as the current throttle takes for ``size`` bytes."""
        left = float(size)
        while (bytes_per_s := self._gate.bytes_per_s) is not None:
            started = self._clock()
            try:
                async with asyncio.timeout(left / bytes_per_s):
                    await self._change.wait()
            except TimeoutError:
                return
            left -= (self._clock() - started) * bytes_per_s
