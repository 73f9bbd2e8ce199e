"""Certificate authority of one run, and the certificates that it signs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 3650
"""Validity of an authority, days."""

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
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(run)
    builder = (
        _builder(name, key.public_key(), days=DAYS, now=now)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    return Authority(certificate=builder.sign(key, SHA256()), key=key)


def sign(
    authority: Authority, names: Sequence[x509.GeneralName], *, days: int, now: datetime
) -> tuple[bytes, bytes]:
    """Create a certificate for these names and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(_name(names[0].value), key.public_key(), days=days, now=now)
        .issuer_name(authority.certificate.subject)
        .add_extension(issuer, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority.key, SHA256())
    )
    return certificate.public_bytes(Encoding.PEM), pem(key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, public: ec.EllipticCurvePublicKey, *, days: int, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Authorities sign certificates only; services sign handshakes only."""
    return x509.KeyUsage(
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


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
