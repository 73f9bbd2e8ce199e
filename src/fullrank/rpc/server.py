"""Build, serve and drain a grpc.aio server with health and reflection."""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from fullrank.errors import AddressInUse
from fullrank.rpc.channel import COMMON_OPTIONS

log = logging.getLogger(__name__)

OPTIONS: list[tuple[str, int]] = [
    *COMMON_OPTIONS,
    ("grpc.so_reuseport", 0),  # a second service on the same port must fail, not share it
    ("grpc.max_concurrent_streams", 10_000),
    # Channels ping every 30 s; a server that allows less answers with GOAWAY.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 15_000),
    ("grpc.http2.max_ping_strikes", 0),
]

DRAIN_S = 5.0
"""Grace that calls in flight get when a service is told to stop."""


class Server:
    """One listening service. ``start`` binds, ``stop`` drains: health first says NOT_SERVING."""

    def __init__(self, services: Sequence[str], register: Callable[[grpc.aio.Server], None]) -> None:
        self._services = [*services, ""]
        self._server = grpc.aio.server(options=OPTIONS)
        self._health = health.HealthServicer()
        register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), self._server)

    async def start(self, address: str) -> str:
        """Bind ``host:port`` (port 0 picks one), serve, and return the address bound.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
        """
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise AddressInUse(
                f"cannot listen on {address}: it is taken or not an address of this machine; "
                "stop the other process or choose another address"
            )
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        return f"{address.rsplit(':', 1)[0]}:{port}"

    async def stop(self) -> None:
        """Refuse new calls, give running ones ``DRAIN_S``, then end them."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.stop(DRAIN_S)

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in self._services:
            await self._health.set(service, status)


def stop_signal() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event
