"""Certificates for tests: valid ones, and ones that must be refused."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from cryptography import x509

from fullrank.host.certificates import Identity, Role, initialise, load_authority, sign, today
from fullrank.net.channel import Credentials, Security

RUN = "test"


def certify(folder: Path, *, run: str = RUN) -> Path:
    """Write certificates of all roles to ``folder``."""
    initialise(folder, run=run, days=1, now=today())
    return folder


def security(folder: Path, role: Role) -> Security:
    """The credentials of a role."""
    return Security(credentials=Credentials.load(folder, role))


def named(folder: Path, *uris: str, role: Role, age_days: int = 0) -> Security:
    """Credentials for other URIs, or expired ones, signed by the folder's authority."""
    names: list[x509.GeneralName] = [x509.DNSName(Identity(run=RUN, role=role).server_name)]
    names += [x509.UniformResourceIdentifier(uri) for uri in uris]
    issued = today() - timedelta(days=age_days)
    certificate, key = sign(load_authority(folder), names, days=1, now=issued)
    own = Credentials.load(folder, role)
    return Security(credentials=replace(own, certificate=certificate, key=key))
