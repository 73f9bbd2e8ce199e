"""A service that answers every call as it is told, whatever it was asked."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from grpc import StatusCode
from hypothesis import strategies as st
from tests.hostile import garbled, hostile

from fullrank.net.channel import PLAINTEXT
from fullrank.net.server import Server

GARBAGE = b"\xff" * 9
"""Bytes that are no message of any kind."""


@dataclass
class Answers:
    """The answers of a service, which it gives from the start in each call.

    A stream is refused after its last answer, so that no caller repeats it, or waits for the caller
    to end it.
    """

    address: str = ""
    given: Sequence[bytes] = field(default_factory=list)
    waits: bool = False

    def handler(self, method: MethodDescriptor) -> Any:
        """Answer the calls of a method."""

        async def unary(request: Any, context: Any) -> bytes:
            return self.given[0]

        async def stream(request: Any, context: Any) -> None:
            if method.client_streaming:
                await anext(request, None)
            for answer in self.given:
                await context.write(answer)
            if self.waits:
                async for _ in request:
                    pass
            await context.abort(StatusCode.FAILED_PRECONDITION, "no more answers")

        return stream if method.server_streaming else unary


@asynccontextmanager
async def answering(service: ServiceDescriptor) -> AsyncIterator[Answers]:
    """A service of that kind."""
    answers = Answers()
    handlers = {method.name: answers.handler(method) for method in service.methods}
    server = Server(
        service, SimpleNamespace(**handlers), security=PLAINTEXT, prebuilt=frozenset(handlers)
    )
    answers.address = await server.start("127.0.0.1:0")
    try:
        yield answers
    finally:
        await server.stop(drain_s=0.0)


@st.composite
def dialogues(
    draw: st.DrawFn, honest: Sequence[Message], *, spared: frozenset[str] = frozenset()
) -> list[bytes]:
    """Answers of which one is spoilt, perhaps so that it is no message any more."""
    spoilt = draw(st.integers(0, len(honest) - 1))
    given = [message.SerializeToString() for message in honest]
    bad = draw(hostile(honest[spoilt], spared=spared)).SerializeToString()
    given[spoilt] = draw(garbled(bad)) if draw(st.integers(0, 4)) == 0 else bad
    return given
