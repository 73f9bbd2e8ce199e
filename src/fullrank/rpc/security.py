"""Transport security between services: mutual TLS, or plain text on one host."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Self

import grpc

from fullrank.common.errors import ConfigError
from fullrank.config.tree import TlsSettings
from fullrank.config.values import LOCAL
from fullrank.rpc.certificates import CERTIFICATE, KEY, TRUSTED, examine, read, today
from fullrank.rpc.identity import Identity, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A certificate, its key and the authority that it trusts, all PEM."""

    identity: Identity
    certificate: bytes
    trusted: bytes
    key: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path, role: Role, learner: int | None = None) -> Self:
        """The credentials of a role, or of one learner, from a folder of certificates.

        Raises:
            ConfigError: They are missing, expired, of another role, or do not match.
        """
        place = folder / Identity(run="", role=role, learner=learner).folder
        facts = examine(place)
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
            certificate=read(place / CERTIFICATE),
            trusted=read(place / TRUSTED),
            key=read(place / KEY),
        )


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
    def of(cls, settings: TlsSettings, role: Role) -> Self:
        """The configured security of a process.

        Raises:
            ConfigError: Its certificate cannot be used.
        """
        folder = settings.certificates
        learner = settings.learner if role is Role.LEARNER and settings.learner >= 0 else None
        return cls(
            credentials=Credentials.load(Path(folder), role, learner) if folder else None,
            allow_plaintext=settings.allow_plaintext,
            sidecar=settings.sidecar,
        )

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


PLAINTEXT = Security()
"""Security of peers on one host."""


def is_loopback(address: str) -> bool:
    """True if ``host:port`` can be reached from this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
