"""``fullrank health``: the health of a service, for container health checks and people."""

from typing import Annotated

import typer

from fullrank.cli.say import say
from fullrank.common.errors import ServiceLost
from fullrank.host.probe import TIMEOUT_S, probe


def health(
    address: Annotated[str, typer.Argument(help="host:port that serves grpc.health.v1.")],
    service: Annotated[
        str,
        typer.Option("--service", help="Service name to ask about; default: the whole process."),
    ] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Limit on every wait, in seconds.")
    ] = TIMEOUT_S,
) -> None:
    """Print SERVING, or end with exit code 9 and the reason."""
    try:
        found = probe(address, service, timeout)
    except OSError as error:
        raise ServiceLost(f"{address}: {error}") from None
    if found != "SERVING":
        raise ServiceLost(f"{address}: {found}")
    say(found)
