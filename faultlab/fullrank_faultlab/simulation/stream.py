"""A Work stream without a network: messages in order, after a while, but for what befalls them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from fullrank.common.errors import ServiceLost
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners.servicer import ControllerServicer

APART_S = 1e-6
"""Between two messages of one direction, so that they stay in order."""


@dataclass(slots=True, kw_only=True)
class Weather:
    """What befalls the messages of a line.

    Shares are of all messages. None is lost while its stream goes on, as gRPC promises: a report
    that vanished would be waited for.
    """

    draws: np.random.Generator
    delay_s: float = 0.01
    """Mean, exponential."""
    doubled: float = 0.0
    swapped: float = 0.0
    flipped: float = 0.0
    """One bit of a message that carries chunks."""
    closed_until: float = 0.0
    """A partition: nothing arrives before this time."""

    def clear(self) -> None:
        """Fair from now on."""
        self.doubled = self.swapped = self.flipped = self.closed_until = 0.0


@dataclass(slots=True)
class _Lane:
    """One direction."""

    weather: Weather
    arrived: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    _last_s: float = 0.0
    _held: list[bytes] = field(default_factory=list)

    def send(self, message: bytes, *, bulky: bool) -> None:
        weather, draw = self.weather, self.weather.draws.random(3)
        if bulky and draw[0] < weather.flipped:
            place = int(weather.draws.integers(8 * len(message)))
            changed = bytearray(message)
            changed[place // 8] ^= 1 << place % 8
            message = bytes(changed)
        if draw[1] < weather.swapped and not self._held:
            self._held.append(message)
            return
        for each in (message, *([message] if draw[2] < weather.doubled else []), *self._held):
            self._deliver(each)
        self._held.clear()

    def end(self) -> None:
        self._deliver(None)

    def _deliver(self, message: bytes | None) -> None:
        loop, weather = asyncio.get_running_loop(), self.weather
        due = max(loop.time() + weather.draws.exponential(weather.delay_s), weather.closed_until)
        self._last_s = max(due, self._last_s + APART_S)
        loop.call_at(self._last_s, self.arrived.put_nowait, message)


class _Ended(Exception):
    """The controller ended the stream."""


class Line:
    """One learner's stream, from the learner's side.

    Args:
        servicer: The controller that it reaches.
        weather: Of both directions.
    """

    def __init__(self, servicer: ControllerServicer, weather: Weather) -> None:
        self._up, self._down = _Lane(weather), _Lane(weather)
        self._handler = asyncio.create_task(self._handle(servicer))

    async def _handle(self, servicer: ControllerServicer) -> None:
        context: Any = self
        try:
            await servicer.Work(self._requests(), context)
        except (_Ended, DecodeError):
            pass
        finally:
            self._down.end()

    async def _requests(self) -> AsyncIterator[pb.LearnerMessage]:
        while (message := await self._up.arrived.get()) is not None:
            yield pb.LearnerMessage.FromString(message)

    async def write(self, message: bytes) -> None:
        """The controller's context: say something to the learner."""
        self._down.send(message, bulky=True)

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """The controller's context: end the stream."""
        raise _Ended(f"{code.name}: {details}")

    def say(self, message: pb.LearnerMessage) -> None:
        """Send a message to the controller."""
        self._up.send(message.SerializeToString(), bulky=bool(message.chunks))

    async def hear(self) -> pb.ControllerMessage:
        """The next message of the controller.

        Raises:
            ServiceLost: The stream has ended, or what came is not a message.
        """
        message = await self._down.arrived.get()
        if message is None:
            raise ServiceLost("the stream ended")
        try:
            return pb.ControllerMessage.FromString(message)
        except DecodeError as error:
            raise ServiceLost(str(error)) from None

    def cut(self) -> None:
        """Lose the connection: both sides notice."""
        self._handler.cancel()
        self._down.end()
