"""``fullrank serve NAME``: one service in this process."""

import logging
import os
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer

from fullrank.cli.options import ConfigOption, SetOption
from fullrank.common.errors import ConfigError
from fullrank.common.imports import collecting_later
from fullrank.common.registry import nearest
from fullrank.common.text import plain
from fullrank.config.layers import load
from fullrank.config.trust import check_trusted
from fullrank.rpc.process import Launch

GROUP = "fullrank.services"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"

Main: TypeAlias = Callable[[Launch], int]
"""Runs a service until it ends; returns the exit status of the process."""


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
        typer.Option(
            "--until-finished", help="Exit when the run is finished (learner, collector, local)."
        ),
    ] = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Wait until no controller answers, then continue its run from checkpoint.mirror "
            "(controller).",
        ),
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
            "`fullrank resume` starts its services so.",
        ),
    ] = False,
) -> None:
    """Run a service until SIGTERM; docs/exit-codes.md lists the exit codes."""
    main = find(name)
    start_log(logging.StreamHandler())
    launch = Launch(
        resolved=load(config, environ=os.environ, overrides=overrides or ()),
        run_dir=run_dir,
        replicas=replicas,
        until_finished=until_finished,
        standby=standby,
        stop_with_stdin=stop_with_stdin,
    )
    if remembered:
        check_trusted(launch.config.environment, origin=str(config or "the configuration"))
    raise typer.Exit(main(launch))


class _PlainFormatter(logging.Formatter):
    """Formats records as plain lines, since reasons and names come from other processes."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = plain(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(plain, super().formatException(ei).split("\n")))


def start_log(handler: logging.Handler, *, form: str = LOG_FORMAT) -> None:
    """Send the log of this process to a handler."""
    handler.setFormatter(_PlainFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def find(name: str) -> Main:
    """The service of a name.

    Raises:
        ConfigError: There is no such service, or a package that it needs is not installed.
    """
    services = {point.name: point for point in entry_points(group=GROUP)}
    if name not in services:
        raise ConfigError(f"unknown service {name!r}{nearest(name, list(services))}")
    try:
        with collecting_later():
            return cast(Main, services[name].load())
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the {name} needs the package {error.name!r}: pip install 'fullrank[{name}]'"
        ) from error
