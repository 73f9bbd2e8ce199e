"""``fullrank serve NAME``: one service in this process."""

import logging
import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.options import ConfigOption, SetOption
from fullrank.config import load
from fullrank.errors import ConfigError
from fullrank.registry import nearest
from fullrank.rpc.launch import Launch

GROUP = "fullrank.services"


def serve(
    name: Annotated[str, typer.Argument(help="controller, learner, replay or straggler.")],
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="The run's own directory.")
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, help="Learner processes to run (learner only).")
    ] = 1,
    until_finished: Annotated[
        bool,
        typer.Option("--until-finished", help="End when the run is finished (learner only)."),
    ] = False,
    stop_with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", help="Stop when standard input closes."),
    ] = False,
) -> None:
    """Run a service until SIGTERM; the exit status is documented in docs/exit-codes.md."""
    services = {point.name: point for point in entry_points(group=GROUP)}
    if name not in services:
        raise ConfigError(f"unknown service {name!r}{nearest(name, list(services))}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    launch = Launch(
        resolved=load(config, environ=os.environ, overrides=overrides or ()),
        run_dir=run_dir,
        replicas=replicas,
        until_finished=until_finished,
        stop_with_stdin=stop_with_stdin,
    )
    raise typer.Exit(services[name].load()(launch))
