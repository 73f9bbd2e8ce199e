"""``fullrank certs``: certificates by which the services of a run authenticate each other."""

import base64
import json
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fullrank.cli.options import JsonOption
from fullrank.cli.say import say, say_json
from fullrank.common.errors import ConfigError
from fullrank.host.certificates import (
    Identity,
    Role,
    examine,
    initialise,
    issued,
    rotate,
    today,
)

app = typer.Typer(no_args_is_help=True)

Folder: TypeAlias = Annotated[Path, typer.Argument(help="Directory of the run's certificates.")]
Days: TypeAlias = Annotated[int, typer.Option("--days", min=1, help="Validity, in days.")]

DEPLOYED = (Role.CONTROLLER, Role.LEARNER, Role.COLLECTOR, Role.REPLAY, Role.MONITOR)
"""Roles that run in a cluster, the page's among them; administrators are outside it."""
RUN = "fullrank"
"""The run of the manifests, whose objects have no prefix."""


@app.callback()
def _certs() -> None:
    """Make, renew and show the certificates of a run."""


@app.command()
def init(
    folder: Folder,
    run: Annotated[str, typer.Option("--run", help="Name of the run in the certificates.")] = RUN,
    days: Days = 365,
    learners: Annotated[
        int,
        typer.Option("--learners", min=0, help="Learners with one each; 0: all share one."),
    ] = 0,
) -> None:
    """Make an authority and a certificate for each role; existing ones are kept."""
    made = initialise(folder, run=run, days=days, now=today(), learners=learners)
    _say(folder, made, "made")


@app.command("rotate")
def rotate_(folder: Folder, days: Days = 365) -> None:
    """Replace every certificate and key; restart the services to use them."""
    _say(folder, rotate(folder, days=days, now=today()), "renewed")


@app.command()
def show(folder: Folder, as_json: JsonOption = False) -> None:
    """Print the identity and the expiry of each certificate."""
    rows = []
    for place in _issued(folder):
        facts = examine(place)
        rows.append({"name": facts.identity.uri, "until": f"{facts.not_after:%FT%TZ}"})
    if as_json:
        say(json.dumps(rows))
        return
    for row in rows:
        say(f"{row['name']:40} until {row['until']}")


@app.command()
def secrets(folder: Folder) -> None:
    """Print Kubernetes Secrets of the run's services, for ``kubectl apply --filename -``."""
    for place in _issued(folder):
        facts = examine(place)
        if facts.identity.role in DEPLOYED:
            say("---")
            say_json(_secret(facts.identity, facts.files))


def _issued(folder: Path) -> list[Path]:
    """Return the places of a folder's certificates.

    Raises:
        ConfigError: There are none.
    """
    if not (places := [*issued(folder)]):
        raise ConfigError(f"{folder} has no certificates; `fullrank certs init` makes them")
    return places


def _secret(identity: Identity, files: dict[str, bytes]) -> dict[str, object]:
    prefix = "" if identity.run == RUN else f"{identity.run}-"
    labels = {"app.kubernetes.io/name": "fullrank", "app.kubernetes.io/instance": identity.run}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": f"{prefix}certificate-{identity.folder}", "labels": labels},
        "data": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }


def _say(folder: Path, identities: list[Identity], what: str) -> None:
    names = ", ".join(identity.folder for identity in identities)
    say(f"{folder}: {what} {names or 'nothing'}")
