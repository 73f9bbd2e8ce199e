"""Where the monitor of a run listens: named by its directory, by its address, or not at all."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fullrank.cli.options import security_of
from fullrank.cli.runs import find_run, newest_run, read_config
from fullrank.errors import ServiceLost
from fullrank.rpc.addresses import resolve
from fullrank.rpc.identity import Role
from fullrank.rpc.monitor import Monitor

RunOption: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="Run directory, its name below runs/, or host:port of its monitor; left out: the "
        "newest run.",
        show_default=False,
    ),
]


def locate(run: str | None, certificates: Path | None) -> Callable[[], Monitor]:
    """What dials the run's monitor where it listens now; a restarted one may listen elsewhere.

    Raises:
        FullrankError: There is no such run, or its certificates cannot be used.
    """
    if run is not None and re.fullmatch(r".+:\d+", run) and not Path(run).exists():
        security = security_of(certificates, Role.MONITOR)
        return lambda: Monitor(run, security=security)
    directory = newest_run() if run is None else find_run(Path(run))
    config = read_config(directory)
    own = Path(config.tls.certificates) if config.tls.certificates else None
    security = security_of(certificates or own, Role.MONITOR)

    def dial() -> Monitor:
        try:
            address = resolve(config.monitor.address, directory, "monitor")
        except ServiceLost:
            raise ServiceLost(
                f"{directory} has no controller; `fullrank resume {directory}` starts one"
            ) from None
        return Monitor(address, security=security)

    return dial
