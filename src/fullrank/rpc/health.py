"""Health service of a process, on its own address, because probes do not speak mutual TLS."""

from typing import Self

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from fullrank.rpc.security import Security
from fullrank.rpc.server import bind, guarded_server

LIVE = "live"
"""Health service name that is SERVING while the process answers, in any state of its peers."""

ANY_HOST = Security(allow_plaintext=True)
"""Probes come from any host without a certificate; this port serves no other method."""


class Health:
    """Reports whether the process works (the empty name) and whether it lives (``LIVE``).

    Args:
        address: ``host:port``; empty: no server.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.working = self.has_worked = False
        self._servicer = health.aio.HealthServicer()
        self._server = guarded_server(ANY_HOST) if address else None

    async def __aenter__(self) -> Self:
        """Start serving: alive, not yet at work.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
        """
        if self._server is not None:
            health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
            bind(self._server, self._address, security=ANY_HOST)
            await self.at_work(False)
            await self._servicer.set(LIVE, health_pb2.HealthCheckResponse.SERVING)
            await self._server.start()
        return self

    async def at_work(self, working: bool) -> None:
        """SERVING from now on, or NOT_SERVING."""
        self.working, self.has_worked = working, self.has_worked or working
        status = health_pb2.HealthCheckResponse
        await self._servicer.set("", status.SERVING if working else status.NOT_SERVING)

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop(None)
