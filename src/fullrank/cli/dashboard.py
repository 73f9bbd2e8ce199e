"""``fullrank dashboard``: a web page that shows runs live."""

import logging
import os
from typing import Annotated

import typer

from fullrank.cli.log import start_log
from fullrank.cli.options import CertificatesOption, SetOption
from fullrank.cli.runs import meant
from fullrank.cli.serve import find
from fullrank.common.errors import FullrankError
from fullrank.config.layers import load
from fullrank.host.process import Launch

log = logging.getLogger(__name__)


def dashboard(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Run directories, their names below runs/, or host:port of their monitors; "
            "default: the newest run.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port on loopback; 0: any free port."),
    ] = None,
    certificates: CertificatesOption = None,
    overrides: SetOption = None,
) -> None:
    """Serve the page until Ctrl-C, waiting for controllers that cannot be reached."""
    start_log(logging.StreamHandler(), form="%(message)s")
    options = {
        "dashboard.runs": [_known(run) for run in runs] if runs else [meant(None)],
        "dashboard.address": None if port is None else f"127.0.0.1:{port}",
        "tls.certificates": None if certificates is None else str(certificates),
    }
    resolved = load(environ=os.environ, overrides=overrides or (), options=options)
    raise typer.Exit(find("dashboard")(Launch(resolved=resolved)))


def _known(run: str) -> str:
    """The run as ``meant`` resolves it, or unchanged if it does not exist yet."""
    try:
        return meant(run)
    except FullrankError as error:
        log.warning("%s; waiting for it", error)
        return run
