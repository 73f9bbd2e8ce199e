"""Servers with access control, health and reflection, and their shutdown.

A process has its health on an address of its own, because probes do not speak mutual TLS.
"""

from collections.abc import Callable, Sequence
from typing import Self

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fullrank.common.errors import AddressInUse, ConfigError
from fullrank.config.values import LOCAL
from fullrank.host.run_directory import is_socket, make_socket_address, remove_socket
from fullrank.net.access import Gatekeeper
from fullrank.net.channel import COMMON_OPTIONS, Security
from fullrank.net.limits import AT_ONCE

METADATA_BYTES = 8 * 1024
"""Longest metadata of a call."""

CALLS = 10_000
"""Concurrent calls of a server, and calls that wait for it, over all connections."""

STREAMS = AT_ONCE + AT_ONCE // 4
"""Streams of one connection. Calls beyond ``AT_ONCE`` are refused with a reason; calls beyond this
wait at the client or are refused by HTTP/2, at no cost to the server."""

OPTIONS: list[tuple[str, int]] = [
    *COMMON_OPTIONS,
    ("grpc.so_reuseport", 0),  # a second service on the same port must fail, not share it
    ("grpc.max_concurrent_streams", STREAMS),
    # By default gRPC cancels calls at random when more than a thousand wait.
    ("grpc.server.max_pending_requests", CALLS),
    ("grpc.server.max_pending_requests_hard_limit", CALLS),
    # Close connections that have not completed HTTP/2 and TLS handshakes by then.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Refuse longer metadata always; between the two limits gRPC refuses at random.
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    # Accept no compressed message: a small one could inflate to a large one.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Channels ping every 10 s; a server that allows fewer pings answers with GOAWAY.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]

DRAIN_S = 5.0
"""Grace period of calls in flight when a service stops, seconds."""


class Server:
    """One listening service. ``start`` binds, ``stop`` drains: health first says NOT_SERVING.

    Args:
        descriptor: The service.
        servicer: Its implementation.
        security: Credentials of the server.
        prebuilt: Methods whose responses are already encoded.
    """

    def __init__(
        self,
        descriptor: ServiceDescriptor,
        servicer: object,
        *,
        security: Security,
        prebuilt: frozenset[str] = frozenset(),
    ) -> None:
        self._name = descriptor.full_name
        self._security = security
        self._server = guarded_server(security)
        self._bound = ""
        self._health = health.aio.HealthServicer()
        add_service(self._server, descriptor, servicer, prebuilt=prebuilt)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (self._name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(
        self, address: str, *, on_bound: Callable[[str], None] = lambda address: None
    ) -> str:
        """Bind an address as ``bind`` does, serve, and return the address bound.

        Args:
            address: The address.
            on_bound: Called with the address bound, before the first call is served.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
            ConfigError: It would be plain text beyond loopback.
        """
        self._bound = bound = bind(self._server, address, security=self._security)
        on_bound(bound)
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        return bound

    async def stop(self, *, drain_s: float = DRAIN_S) -> None:
        """Refuse new calls, give running ones ``drain_s``, then end them."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.stop(drain_s)
        remove_socket(self._bound)

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", self._name):
            await self._health.set(service, status)


def guarded_server(
    security: Security, *, options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Server:
    """A server with access control.

    Args:
        security: Credentials of the server.
        options: Options that override the defaults.
    """
    credentials = security.credentials
    return grpc.aio.server(
        interceptors=[Gatekeeper(credentials.identity if credentials else None)],
        options=[*options, *OPTIONS],
        maximum_concurrent_rpcs=CALLS,
    )


def bind(server: grpc.aio.Server, address: str, *, security: Security) -> str:
    """Bind ``host:port`` (port 0 picks one) or ``local``, a new socket; return the address bound.

    Raises:
        AddressInUse: The address is taken or cannot be bound.
        ConfigError: It would be plain text beyond loopback, or a socket that cannot be made.
    """
    if is_socket(address):
        raise ConfigError(f"cannot listen on {address}: a service makes its own socket; say local")
    credentials = security.listen(address)
    if address == LOCAL:
        address = make_socket_address()
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if not port:
        raise AddressInUse(
            f"cannot listen on {address}: it is taken or not an address of this machine; "
            "stop the other process or choose another address"
        )
    return address if is_socket(address) else f"{address.rsplit(':', 1)[0]}:{port}"


def add_service(
    server: grpc.aio.Server,
    descriptor: ServiceDescriptor,
    servicer: object,
    *,
    prebuilt: frozenset[str] = frozenset(),
) -> None:
    """Register a servicer; the responses of ``prebuilt`` methods are already encoded bytes."""
    handlers = {}
    for method in descriptor.methods:
        kind = "_".join(
            "stream" if streaming else "unary"
            for streaming in (method.client_streaming, method.server_streaming)
        )
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        response = GetMessageClass(method.output_type)
        handlers[method.name] = make(
            getattr(servicer, method.name),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=bytes if method.name in prebuilt else response.SerializeToString,
        )
    generic = grpc.method_handlers_generic_handler(descriptor.full_name, handlers)
    server.add_generic_rpc_handlers((generic,))


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
