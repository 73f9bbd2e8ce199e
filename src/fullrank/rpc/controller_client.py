"""Asynchronous client of the controller."""

from typing import TypeAlias

import grpc

from fullrank.rpc.channel import open_channel
from fullrank.rpc.deserializing import checked
from fullrank.rpc.errors import translated
from fullrank.rpc.identity import Role
from fullrank.rpc.security import PLAINTEXT, Security
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.controller_pb2_grpc import ControllerServiceStub

WorkCall: TypeAlias = grpc.aio.StreamStreamCall[bytes, pb.ControllerMessage]
CollectCall: TypeAlias = grpc.aio.StreamStreamCall[bytes, pb.CollectorOrder]

CALL_S = 10.0
"""Deadline of a small unary call."""


def _as_is(message: bytes) -> bytes:
    return message


class ControllerClient:
    """Client of ControllerService.

    Args:
        address: ``host:port``.
        security: Identity of the caller.
    """

    def __init__(self, address: str, *, security: Security = PLAINTEXT) -> None:
        self._channel = open_channel(address, trust=security.towards(Role.CONTROLLER))
        self._stub = ControllerServiceStub(self._channel)
        self.peer = f"controller {address}"

    def work(self) -> WorkCall:
        """Open the Work stream; requests are encoded messages.

        It has no deadline of its own: the controller bounds each step of the dialogue, and
        heartbeats bound its silence.
        """
        return self._channel.stream_stream(
            f"/{pb.DESCRIPTOR.services_by_name['ControllerService'].full_name}/Work",
            request_serializer=_as_is,
            response_deserializer=pb.ControllerMessage.FromString,
        )()

    def collect(self) -> CollectCall:
        """Open the Collect stream, which is bounded as ``work`` is."""
        return self._channel.stream_stream(
            f"/{pb.DESCRIPTOR.services_by_name['ControllerService'].full_name}/Collect",
            request_serializer=_as_is,
            response_deserializer=pb.CollectorOrder.FromString,
        )()

    async def heartbeat(self, lease: bytes, *, timeout_s: float) -> None:
        """Renew the lease; ``NotFound`` if it has ended."""
        request = pb.HeartbeatRequest(lease=lease)
        with translated(self.peer):
            await self._stub.Heartbeat(request, timeout=timeout_s)

    async def status(self, *, timeout_s: float = CALL_S) -> pb.GetStatusResponse:
        """Status of the run."""
        with translated(self.peer):
            return checked(await self._stub.GetStatus(pb.GetStatusRequest(), timeout=timeout_s))

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()
