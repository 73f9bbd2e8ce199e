"""Which run a user means: named by its directory, by its monitor's address, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fullrank.cli.options import tls_of
from fullrank.cli.runs import find_run, newest_run
from fullrank.rpc.located import is_address, monitor_of
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


def meant(run: str | None) -> str:
    """The run's directory, or ``host:port``.

    Raises:
        FullrankError: There is no such run.
    """
    if run is not None and is_address(run):
        return run
    return str(newest_run() if run is None else find_run(Path(run)))


def locate(run: str | None, certificates: Path | None) -> Callable[[], Monitor]:
    """What dials the run's monitor where it listens now; a restarted one may listen elsewhere.

    The run itself is looked for when it is dialled, too: ``FullrankError`` if there is none.
    """
    tls = tls_of(certificates)

    def dial() -> Monitor:
        address, security = monitor_of(meant(run), tls)
        return Monitor(address, security=security)

    return dial
