"""Options and arguments that several verbs share, and the configuration that they give."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from fullrank.config.layers import Resolved, load
from fullrank.config.topologies import TOPOLOGIES
from fullrank.config.tree import TlsSettings

ConfigOption: TypeAlias = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings.", dir_okay=False)
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated."),
]
TopologyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--topology",
        help="The players and their pace, by the name of a published system: "
        + "; ".join(f"{name}: {topology.meaning}" for name, topology in TOPOLOGIES.items())
        + ".",
    ),
]
CertificatesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--certificates", help="Directory of the run's certificates; overrides tls.certificates."
    ),
]
TrustOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE:FACTORY",
        help="Import this environment, which you have not trained here; may be repeated.",
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OnOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="PLACE",
        help="Where the run is: host, compose or kubernetes; default: where there is one of that "
        "name.",
    ),
]
LocalOption: TypeAlias = Annotated[
    bool,
    typer.Option("--local", help="Train in one process, without services."),
]
VerboseOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show the codes of rounds: rows used, condition number, exactness.",
    ),
]
UntilEndOption: TypeAlias = Annotated[
    bool,
    typer.Option("--follow", help="Go on until the run has ended."),
]

AgentsOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--agents", help="Number of agents M; default: the environment's own."),
]
StragglersOption: TypeAlias = Annotated[
    int | None, typer.Option("--stragglers", help="Number of stragglers k in every iteration.")
]
DelayOption: TypeAlias = Annotated[
    float | None, typer.Option("--delay", help="Delay of each straggler, in seconds.")
]
SeedOption: TypeAlias = Annotated[
    int | None, typer.Option("--seed", help="Seed of every random draw.")
]

RunArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="Run directory, or its name below runs/.")
]
RunOption: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="Name of the run, its directory, or host:port of its monitor; default: the newest "
        "run of this host.",
        show_default=False,
    ),
]
EpisodesOption: TypeAlias = Annotated[
    int, typer.Option("--episodes", help="Number of episodes to play for each policy.", min=1)
]
MOST_KEY = 2**63 - 1
"""Largest seed, or index of an episode, from which random draws follow."""
InitialSeedOption: TypeAlias = Annotated[
    int,
    typer.Option("--seed", help="Seed of the episodes' initial states.", min=0, max=MOST_KEY),
]


def size_options(
    *,
    agents: int | None,
    learners: int | None,
    stragglers: int | None,
    delay: float | None,
    seed: int | None,
) -> dict[str, Any]:
    """Configuration keys of the options that ``train`` and ``simulate`` share."""
    return {
        "environment.agents": agents,
        "learners": learners,
        "stragglers.name": None if stragglers is None and delay is None else "fixed_k",
        "stragglers.k": stragglers,
        "stragglers.delay_s": delay,
        "seed": seed,
    }


def resolve(
    config_path: Path | None,
    overrides: list[str] | None,
    options: Mapping[str, Any] | None = None,
    topology: str | None = None,
) -> Resolved:
    """The checked configuration from the file, this process's environment and the options.

    Args:
        config_path: Value of ``--config``.
        overrides: Values of ``--set``.
        options: Dotted keys of typed options; None means not given.
        topology: Value of ``--topology``.

    Raises:
        ConfigError: A key is unknown or a value impossible.
    """
    given, environ = overrides or (), os.environ
    layers = load(config_path, environ=environ, overrides=given, options=options, topology=topology)
    return layers.check()


def tls_of(certificates: Path | None) -> TlsSettings:
    """TLS settings of this process: ``--certificates``, else the configured ones."""
    folder = None if certificates is None else str(certificates)
    return load(environ=os.environ, options={"tls.certificates": folder}).config.tls
