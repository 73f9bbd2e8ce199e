"""Options that several verbs take."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from fullrank.config import Resolved, TlsSettings, load
from fullrank.rpc.identity import Role
from fullrank.rpc.security import Security

ConfigOption: TypeAlias = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings.", dir_okay=False)
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated."),
]
CertificatesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--certificates", help="The run's certificates, instead of tls.certificates."),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def resolve(
    config_path: Path | None,
    overrides: list[str] | None,
    options: Mapping[str, Any] | None = None,
) -> Resolved:
    """The checked configuration from the file, this process's environment and the options.

    Args:
        config_path: What ``--config`` gave.
        overrides: What ``--set`` gave.
        options: Dotted keys of typed options; None as a value means not given.

    Raises:
        ConfigError: A key is unknown or a value impossible.
    """
    layers = load(config_path, environ=os.environ, overrides=overrides or (), options=options)
    return layers.check()


def tls_of(certificates: Path | None) -> TlsSettings:
    """What this process shows; what ``--certificates`` does not say is configured."""
    folder = None if certificates is None else str(certificates)
    return load(environ=os.environ, options={"tls.certificates": folder}).config.tls


def security_of(certificates: Path | None, role: Role) -> Security:
    """What this process shows to a service in a role."""
    return Security.of(tls_of(certificates), role)
