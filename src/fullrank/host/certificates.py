"""Certificates of a run: its own authority, and one certificate for each role.

A folder of certificates has one folder for the authority, which no service needs, and one for each
role with the files of a Kubernetes Secret of type ``kubernetes.io/tls``. A certificate names role
and run twice: as a URI, which servers read (as in SPIFFE), and as a DNS name, which callers verify.
It names no host, so that a service can move.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum, auto
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fullrank.common.durable import replace_bytes, writing
from fullrank.common.errors import ConfigError, Malformed
from fullrank.common.foreign import read_regular

SCHEME = "fullrank"

_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)


class Role(StrEnum):
    """Role of a certificate's holder; each rpc declares the roles that may call it."""

    CONTROLLER = auto()
    LEARNER = auto()
    REPLAY = auto()
    MONITOR = auto()
    ADMIN = auto()
    COLLECTOR = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A role in a run."""

    run: str
    role: Role
    learner: int | None = None
    """Number of the one learner that the certificate is for; None if all of the role share it."""

    @property
    def folder(self) -> str:
        """Name of the folder with the certificate: the role, and the learner's number."""
        return self.role if self.learner is None else f"{self.role}-{self.learner}"

    @property
    def uri(self) -> str:
        """URI in the certificate, which servers read."""
        number = "" if self.learner is None else f"/{self.learner}"
        return f"{SCHEME}://{self.run}/{self.role}{number}"

    @property
    def server_name(self) -> str:
        """DNS name in the certificate, which callers verify wherever the server listens."""
        return f"{self.role}.{self.run}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """An identity from its URI.

        Raises:
            ValueError: It is not the URI of an identity.
        """
        scheme, _, rest = uri.partition("://")
        run, _, path = rest.partition("/")
        role, numbered, number = path.partition("/")
        if scheme != SCHEME or not run:
            raise ValueError(f"{uri} is not {SCHEME}://RUN/ROLE")
        if not numbered:
            return cls(run=run, role=Role(role))
        if role != Role.LEARNER or not _NUMBER.fullmatch(number):
            raise ValueError(f"{uri} is not {SCHEME}://RUN/{Role.LEARNER}/NUMBER")
        return cls(run=run, role=Role.LEARNER, learner=int(number))


DAYS = 3650
"""Validity of an authority, days."""

FILE_BYTES = 2**20
"""Largest file of certificates."""

SKEW = timedelta(hours=1)
"""Tolerance for peers whose clocks are behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Signs the certificates of one run."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def run(self) -> str:
        """Name of the run."""
        return str(self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def new_authority(run: str, *, now: datetime) -> Authority:
    """Create a self-signed authority."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(run)
    builder = _builder(name, key.public_key(), issuer=name, signs=True, days=DAYS, now=now)
    return Authority(certificate=builder.sign(key, SHA256()), key=key)


def sign(
    authority: Authority, names: Sequence[x509.GeneralName], *, days: int, now: datetime
) -> tuple[bytes, bytes]:
    """Create a certificate for these names and its key, both PEM."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(names[0].value)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    by, subject = authority.key.public_key(), authority.certificate.subject
    certificate = (
        _builder(name, key.public_key(), issuer=subject, signs=False, days=days, now=now)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by), critical=False)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority.key, SHA256())
    )
    return certificate.public_bytes(Encoding.PEM), pem(key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Name,
    signs: bool,
    days: int,
    now: datetime,
) -> x509.CertificateBuilder:
    """Begin a certificate; authorities sign certificates only, services handshakes only."""
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=signs, path_length=0 if signs else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
    )


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


AUTHORITY = "authority"
TRUSTED, CERTIFICATE, KEY, AUTHORITY_KEY = "ca.crt", "tls.crt", "tls.key", "ca.key"

_RUN = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Contents of a role's certificate."""

    identity: Identity
    not_before: datetime
    not_after: datetime
    files: dict[str, bytes] = field(repr=False)
    """The files that were examined, by name."""


def initialise(
    folder: Path, *, run: str, days: int, now: datetime, learners: int = 0
) -> list[Identity]:
    """Create the missing files; returns the identities that received a certificate.

    Args:
        folder: The folder of the run's certificates.
        run: Name of the run.
        days: Validity of the certificates.
        now: The time.
        learners: Number of learners that get one each; 0: one that all share.

    Raises:
        ConfigError: The run's name is invalid, the folder belongs to another run, or the key of its
            authority is not there.
    """
    if not _RUN.fullmatch(run):
        raise ConfigError(
            f"run {run!r}: a certificate names it in lower-case letters, digits and -, at most 50"
        )
    key, trusted = folder / AUTHORITY / AUTHORITY_KEY, folder / AUTHORITY / TRUSTED
    begun = any((place / CERTIFICATE).exists() for place in issued(folder))
    if not key.exists() and (begun or trusted.exists()):
        raise ConfigError(
            f"{key} is missing, and what is in {folder} needs it; put it back, or choose another "
            "folder"
        )
    if not (begun or trusted.exists()):  # a key alone is of a process that was killed here
        made = new_authority(run, now=now)
        _write(key, pem(made.key))
        _write(trusted, made.certificate.public_bytes(Encoding.PEM))
    authority = load_authority(folder)
    if authority.run != run:
        raise ConfigError(f"{folder} holds certificates of run {authority.run}; choose another")
    roles = [role for role in Role if not (learners and role is Role.LEARNER)]
    wanted = [Identity(run=run, role=role) for role in roles]
    wanted += [Identity(run=run, role=Role.LEARNER, learner=learner) for learner in range(learners)]
    missing = [identity for identity in wanted if not (folder / identity.folder / KEY).exists()]
    for identity in missing:
        issue(folder, authority, identity, days=days, now=now)
    return missing


def issued(folder: Path) -> list[Path]:
    """The folders of certificates, by role, learners by number."""
    found = [folder / role for role in Role if (folder / role).exists()]
    own = (each for each in folder.glob(f"{Role.LEARNER}-*") if each.name[8:].isdecimal())
    return [*found, *sorted(own, key=lambda place: int(place.name[8:]))]


def rotate(folder: Path, *, days: int, now: datetime) -> list[Identity]:
    """Replace every certificate and key; old ones stay valid, under one authority.

    Keys are not read: one that was not written, because the process was killed, is replaced, too.
    """
    authority = load_authority(folder)
    identities = [_identity_in(place / CERTIFICATE) for place in issued(folder)]
    for identity in identities:
        issue(folder, authority, identity, days=days, now=now)
    return identities


def issue(
    folder: Path, authority: Authority, identity: Identity, *, days: int, now: datetime
) -> None:
    """Write a new certificate and key for an identity into its folder."""
    place = folder / identity.folder
    names = [x509.DNSName(identity.server_name), x509.UniformResourceIdentifier(identity.uri)]
    certificate, key = sign(authority, names, days=days, now=now)
    _write(place / TRUSTED, authority.certificate.public_bytes(Encoding.PEM))
    _write(place / CERTIFICATE, certificate)
    _write(place / KEY, key)


def load_authority(folder: Path) -> Authority:
    """The authority of a folder.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    place = folder / AUTHORITY
    try:
        certificate = x509.load_pem_x509_certificate(read(place / TRUSTED))
        key = load_pem_private_key(read(place / AUTHORITY_KEY), password=None)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}; make another authority elsewhere") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{place / AUTHORITY_KEY} is not of `fullrank certs`")
    return Authority(certificate=certificate, key=key)


class Unmatched(ConfigError):
    """The files of a certificate do not match: they may just be being replaced."""


def examine(folder: Path) -> Facts:
    """Contents of the certificate in a role's folder, after checks that its parts match.

    Raises:
        Unmatched: The files do not match.
        ConfigError: A file is missing or unreadable.
    """
    place = folder / CERTIFICATE
    files = {name: read(folder / name) for name in (CERTIFICATE, TRUSTED, KEY)}
    try:
        certificate = x509.load_pem_x509_certificate(files[CERTIFICATE])
        trusted = x509.load_pem_x509_certificate(files[TRUSTED])
        key = load_pem_private_key(files[KEY], password=None)
        identity = _identity(certificate)
    except (ValueError, x509.ExtensionNotFound) as error:
        raise ConfigError(f"{place}: {error}; see `fullrank certs`") from None
    try:
        certificate.verify_directly_issued_by(trusted)
    except (ValueError, InvalidSignature) as error:
        reason = str(error) or f"{TRUSTED} did not sign it"
        raise Unmatched(f"{place}: {reason}; see `fullrank certs`") from None
    if key.public_key() != certificate.public_key():
        raise Unmatched(f"{place}: {KEY} beside it is another certificate's; see `fullrank certs`")
    return Facts(
        identity=identity,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        files=files,
    )


def today() -> datetime:
    """The time; used for the validity of certificates only."""
    return datetime.now(UTC)


def read(path: Path) -> bytes:
    """The bytes of a file of certificates.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return read_regular(path, FILE_BYTES)
    except Malformed as error:
        raise ConfigError(f"{error}; see `fullrank certs`") from None


def _identity_in(place: Path) -> Identity:
    """The identity in a certificate, whatever lies beside it."""
    try:
        return _identity(x509.load_pem_x509_certificate(read(place)))
    except (ValueError, x509.ExtensionNotFound) as error:
        raise ConfigError(f"{place}: {error}; see `fullrank certs`") from None


def _identity(certificate: x509.Certificate) -> Identity:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise ValueError(f"it holds {len(uris)} URIs, not one")
    return Identity.parse(uris[0])


def _write(path: Path, data: bytes) -> None:
    """Replace a file, readable by its owner alone."""
    with writing(path, remedy="choose another folder", raised=ConfigError):
        replace_bytes(path, data, mode=0o600)
