"""Channels and their options."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc

from fullrank import __version__
from fullrank.rpc.deserializing import marking
from fullrank.rpc.security import Trust
from fullrank.rpc.sockets import check_socket, is_socket

Channel = TypeVar("Channel", grpc.aio.Channel, grpc.Channel)

MESSAGE_BYTES = 4 * 1024 * 1024
"""Longest message; arrays travel in chunks of at most 1 MiB."""

UNLIMITED: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]
"""Options of a proxy, which forwards any message. gRPC uses the first of duplicate options."""

COMMON_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # A chunk travels in one HTTP/2 frame instead of 32, and is read ahead without probing.
    ("grpc.http2.max_frame_size", 1024 * 1024),
    ("grpc.http2.lookahead_bytes", MESSAGE_BYTES),
    ("grpc.http2.bdp_probe", 0),
    # Either side detects a peer that vanished without closing within 20 s, even on an idle stream:
    # sooner than the 30 s that an append or a minibatch may take.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # otherwise a minute, despite keepalive_timeout
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),  # on an idle stream, too
]

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *COMMON_OPTIONS,
    # Reconnect to a restarted service within a second or two, not after minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A replaced container keeps its name but not its address: resolve it again each time.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
]


def open_channel(
    address: str, *, trust: Trust | None = None, options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Channel:
    """A channel to an address; it connects with the first call.

    Args:
        address: ``host:port``, or a unix socket of this user.
        trust: Own credentials and expected server; None for plain text.
        options: Options that override the defaults.

    Raises:
        ServiceLost: The socket is gone, or may be another user's.
    """
    target, everything = _target(address), [*options, *_options(trust)]
    if trust is None:
        return _reading(grpc.aio.insecure_channel(target, options=everything))
    return _reading(grpc.aio.secure_channel(target, trust.credentials, options=everything))


def open_blocking_channel(address: str, *, trust: Trust | None = None) -> grpc.Channel:
    """A channel for programs without an event loop, as ``open_channel`` opens it."""
    target = _target(address)
    if trust is None:
        return _reading(grpc.insecure_channel(target, options=_options(trust)))
    return _reading(grpc.secure_channel(target, trust.credentials, options=_options(trust)))


def _target(address: str) -> str:
    """The target of an address, which may come from a peer: none of gRPC's other schemes."""
    if not is_socket(address):
        return f"dns:///{address}"
    check_socket(address)
    return address


def _reading(channel: Channel) -> Channel:
    """A channel whose calls get a ``NoMessage`` where the bytes of an answer are none."""

    def reading(dial: Callable[..., Any]) -> Callable[..., Any]:
        def dialled(
            method: str,
            request_serializer: Any = None,
            response_deserializer: Any = None,
            **options: Any,
        ) -> Any:
            return dial(method, request_serializer, marking(response_deserializer), **options)

        return dialled

    for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        setattr(channel, kind, reading(getattr(channel, kind)))
    return channel


def _options(trust: Trust | None) -> list[tuple[str, int | str]]:
    named: list[tuple[str, int | str]] = [
        ("grpc.primary_user_agent", f"fullrank/{__version__}"),
        *CHANNEL_OPTIONS,
    ]
    if trust is not None:
        named.append(("grpc.ssl_target_name_override", trust.server_name))
    return named
