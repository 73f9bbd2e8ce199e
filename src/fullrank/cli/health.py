"""``fullrank health``: the health of a service, for container health checks and people."""

from typing import Annotated

import typer

from fullrank.cli.say import say
from fullrank.rpc.health import check


def health(
    address: Annotated[str, typer.Argument(help="host:port that serves grpc.health.v1.")],
    service: Annotated[
        str,
        typer.Option("--service", help="Service name to ask about; default: the whole process."),
    ] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Deadline of the call, in seconds.")
    ] = 3.0,
) -> None:
    """Print SERVING, or end with exit code 9 and the reason."""
    check(address, service=service, timeout_s=timeout)
    say("SERVING")
