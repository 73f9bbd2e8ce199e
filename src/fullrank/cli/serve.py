"""``fullrank serve NAME``: one service in this process; ``fullrank dashboard``, one of them."""

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.options import CertificatesOption, ConfigOption, SetOption
from fullrank.cli.runs import meant
from fullrank.cli.say import start_log
from fullrank.common.errors import FullrankError
from fullrank.config.layers import load
from fullrank.config.trust import check_trusted
from fullrank.host.process import Launch, find_service
from fullrank.runs.identity import CONFIGURATION

log = logging.getLogger(__name__)

JUDGED = ("controller", "local")
"""Services whose plug-in tables are judged, too, before torch is imported; others read none, or
those of the run that they attach to."""


def serve(
    name: Annotated[
        str,
        typer.Argument(
            help="controller, learner, replay, local (all three), collector, straggler, dashboard."
        ),
    ],
    run_dir: Annotated[Path | None, typer.Option("--run-dir", help="Directory of the run.")] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", min=1, help="Number of processes to start (learner, collector)."
        ),
    ] = 1,
    until_finished: Annotated[
        bool,
        typer.Option("--until-finished", help="End with the run: with 0 once it is finished."),
    ] = False,
    stop_with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", help="Stop when standard input closes."),
    ] = False,
    remembered: Annotated[
        bool,
        typer.Option(
            "--remembered",
            help="Import an environment of another package only if you have trained it; "
            "`fullrank run resume` starts its services so.",
        ),
    ] = False,
) -> None:
    """Run a service until SIGTERM; docs/exit-codes.md lists the exit codes."""
    resolved = load(config, environ=os.environ, overrides=overrides or ())
    launch = Launch(
        resolved=resolved.size() if name in JUDGED else resolved,
        run_dir=run_dir,
        replicas=replicas,
        until_finished=until_finished,
        stop_with_stdin=stop_with_stdin,
    )
    if remembered:
        check_trusted(launch.config.environment, origin=str(config or "the configuration"))
    raise typer.Exit(find_service(name)(launch))


def dashboard(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Run directories, folders of them, names below runs/, or host:port of monitors; "
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
        "dashboard.runs": [each for run in runs for each in _known(run)] if runs else [meant(None)],
        "dashboard.address": None if port is None else f"127.0.0.1:{port}",
        "tls.certificates": None if certificates is None else str(certificates),
    }
    resolved = load(environ=os.environ, overrides=overrides or (), options=options)
    raise typer.Exit(find_service("dashboard")(Launch(resolved=resolved)))


def _known(run: str) -> list[str]:
    """The run as ``meant`` resolves it, or unchanged if it does not exist yet; a folder's runs."""
    inside = sorted(Path(run).glob(f"*/{CONFIGURATION}"))
    if inside and not (Path(run) / CONFIGURATION).exists():
        return [meant(str(each.parent)) for each in inside]
    try:
        return [meant(run)]
    except FullrankError as error:
        log.warning("%s; waiting for it", error)
        return [run]
