"""Channels, their options, and their security: mutual TLS, or plain text on one host."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from fullrank import __version__
from fullrank.common.errors import ConfigError
from fullrank.config.tree import TlsSettings
from fullrank.config.values import LOCAL
from fullrank.host.certificates import (
    CERTIFICATE,
    KEY,
    TRUSTED,
    Facts,
    Identity,
    Role,
    Unmatched,
    examine,
    today,
)
from fullrank.host.run_directory import check_socket, is_socket
from fullrank.net.errors import marking

MATCH_S, LOOKS = 1.0, 20
"""Longest time for which ``fullrank certs rotate`` may leave the files of a role unmatched, and how
often they are read meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A certificate, its key and the authority that it trusts, all PEM."""

    identity: Identity
    certificate: bytes
    trusted: bytes
    expires_at: float
    """Unix time."""
    key: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path, role: Role, learner: int | None = None) -> Self:
        """The credentials of a role, or of one learner, from a folder of certificates.

        Raises:
            ConfigError: They are missing, expired, of another role, or do not match within
                ``MATCH_S``.
        """
        place = folder / Identity(run="", role=role, learner=learner).folder
        facts = _matching(place)
        if (facts.identity.role, facts.identity.learner) != (role, learner):
            raise ConfigError(f"{place} holds the certificate of {facts.identity.folder}")
        if not facts.not_before <= today() <= facts.not_after:
            raise ConfigError(
                f"{place / CERTIFICATE} is valid from {facts.not_before:%F %T} to "
                f"{facts.not_after:%F %T} UTC, not now; make another with "
                f"`fullrank certs rotate {folder}`, or set the clock"
            )
        return cls(
            identity=facts.identity,
            certificate=facts.files[CERTIFICATE],
            trusted=facts.files[TRUSTED],
            expires_at=facts.not_after.timestamp(),
            key=facts.files[KEY],
        )


def _matching(place: Path) -> Facts:
    """Examine the files of a folder that may just be replaced.

    Raises:
        ConfigError: As ``examine``, for ``MATCH_S``.
    """
    for _ in range(LOOKS):
        with suppress(Unmatched):
            return examine(place)
        time.sleep(MATCH_S / LOOKS)
    return examine(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Credentials of a caller, and the name that the server must prove."""

    credentials: grpc.ChannelCredentials
    server_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Transport security of a process: how it listens and dials."""

    credentials: Credentials | None = None
    """None: plain text."""
    allow_plaintext: bool = False
    """True if plain text is allowed beyond loopback."""
    sidecar: bool = False
    """True if a straggler proxy, whose role is learner, listens at the controller's address."""

    @classmethod
    def configured(cls, settings: TlsSettings, role: Role) -> Self:
        """The configured security of a process.

        Raises:
            ConfigError: Its certificate cannot be used.
        """
        folder = settings.certificates
        return cls(
            credentials=Credentials.load(Path(folder), role, _number(settings, role))
            if folder
            else None,
            allow_plaintext=settings.allow_plaintext,
            sidecar=settings.sidecar,
        )

    @property
    def expires_at(self) -> float | None:
        """Unix time at which the certificate expires; None in plain text."""
        return None if self.credentials is None else self.credentials.expires_at

    def towards(self, server: Role) -> Trust | None:
        """Trust with which to dial a server of this role; None for plain text."""
        if self.credentials is None:
            return None
        credentials = self.credentials
        if self.sidecar and server is Role.CONTROLLER:
            server = Role.LEARNER
        return Trust(
            credentials=grpc.ssl_channel_credentials(
                credentials.trusted, credentials.key, credentials.certificate
            ),
            server_name=Identity(run=credentials.identity.run, role=server).server_name,
        )

    def listen(self, address: str) -> grpc.ServerCredentials | None:
        """Credentials for listening on ``host:port`` or ``local``; None for plain text.

        Raises:
            ConfigError: It would be plain text beyond loopback, which is not allowed.
        """
        if self.credentials is not None:
            credentials = self.credentials  # and callers must show theirs
            return grpc.ssl_server_credentials(
                [(credentials.key, credentials.certificate)],
                credentials.trusted,
                require_client_auth=True,
            )
        if not (self.allow_plaintext or address == LOCAL or is_loopback(address)):
            raise ConfigError(
                f"refusing to listen on {address} in plain text, where any host may read and "
                "steer the run: make certificates with `fullrank certs init DIR` and set "
                "tls.certificates=DIR, or say tls.allow_plaintext=true"
            )
        return None


def _number(settings: TlsSettings, role: Role) -> int | None:
    """Number of the one learner whose certificate a process has."""
    return settings.learner if role is Role.LEARNER and settings.learner >= 0 else None


def expiry_of(settings: TlsSettings, role: Role) -> float | None:
    """Unix time at which the certificate expires that a caller shows next; None without one."""
    own = Identity(run="", role=role, learner=_number(settings, role))
    try:
        facts = examine(Path(settings.certificates) / own.folder) if settings.certificates else None
    except ConfigError:  # it is just being replaced
        return None
    return None if facts is None else facts.not_after.timestamp()


PLAINTEXT = Security()
"""Security of peers on one host."""


def is_loopback(address: str) -> bool:
    """True if ``host:port`` can be reached from this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
