"""``fullrank health``: is a service at work, for container health checks and people."""

from typing import Annotated

import typer

from fullrank.rpc.health import check


def health(
    address: Annotated[str, typer.Argument(help="host:port that serves grpc.health.v1.")],
    service: Annotated[
        str, typer.Option("--service", help="Name to ask about; left out: is it at work.")
    ] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Longest wait for the answer, seconds.")
    ] = 3.0,
) -> None:
    """Print SERVING, or end with status 9 and say why not."""
    check(address, service=service, timeout_s=timeout)
    print("SERVING")
