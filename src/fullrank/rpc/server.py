"""Build, serve and drain a grpc.aio server with health and reflection."""

from collections.abc import Sequence

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fullrank.common.errors import AddressInUse
from fullrank.rpc.access import Gatekeeper
from fullrank.rpc.channel import COMMON_OPTIONS
from fullrank.rpc.limits import AT_ONCE
from fullrank.rpc.security import Security

METADATA_BYTES = 8 * 1024
"""Longest metadata of a call."""

CALLS = 10_000
"""Calls that a server serves at a time, and those that wait to be looked at, whoever makes them."""

STREAMS = AT_ONCE + AT_ONCE // 4
"""Calls of one connection that reach us; those beyond ``AT_ONCE`` are told that they are too many.
More of them wait at the client, where they take neither room nor time of ours, or HTTP/2 refuses
them."""

OPTIONS: list[tuple[str, int]] = [
    *COMMON_OPTIONS,
    ("grpc.so_reuseport", 0),  # a second service on the same port must fail, not share it
    ("grpc.max_concurrent_streams", STREAMS),
    # By default gRPC cancels, by chance and without a word, of more than a thousand that wait.
    ("grpc.server.max_pending_requests", CALLS),
    ("grpc.server.max_pending_requests_hard_limit", CALLS),
    # Who dials and does not speak HTTP/2 and, if asked to, TLS so soon is sent away.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Beyond this many bytes a call's metadata are refused, always and not now and then.
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    # No message is inflated: a small one could become a large one.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Channels ping every 10 s; a server that allows less answers with GOAWAY.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]

DRAIN_S = 5.0
"""Grace that calls in flight get when a service is told to stop."""


class Server:
    """One listening service. ``start`` binds, ``stop`` drains: health first says NOT_SERVING.

    Args:
        descriptor: The service.
        servicer: What answers its calls.
        security: How it listens, and who it is.
        prebuilt: Methods whose responses are encoded already.
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
        self._health = health.aio.HealthServicer()
        add_service(self._server, descriptor, servicer, prebuilt=prebuilt)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (self._name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, address: str) -> str:
        """Bind ``host:port`` (port 0 picks one), serve, and return the address bound.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
            ConfigError: It would be plain text beyond loopback.
        """
        bound = bind(self._server, address, security=self._security)
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        return bound

    async def stop(self, *, drain_s: float = DRAIN_S) -> None:
        """Refuse new calls, give running ones ``drain_s``, then end them."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.stop(drain_s)

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", self._name):
            await self._health.set(service, status)


def guarded_server(
    security: Security, *, options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Server:
    """A server that knows who may call what.

    Args:
        security: Who it is.
        options: Instead of ours, where both say something.
    """
    own = security.credentials
    return grpc.aio.server(
        interceptors=[Gatekeeper(own.identity if own else None)],
        options=[*options, *OPTIONS],
        maximum_concurrent_rpcs=CALLS,
    )


def bind(server: grpc.aio.Server, address: str, *, security: Security) -> str:
    """Bind ``host:port`` (port 0 picks one); returns the address bound.

    Raises:
        AddressInUse: The address is taken or cannot be bound.
        ConfigError: It would be plain text beyond loopback.
    """
    credentials = security.listen(address)
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
    return f"{address.rsplit(':', 1)[0]}:{port}"


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
