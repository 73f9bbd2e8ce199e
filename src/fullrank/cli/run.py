"""``fullrank run``: runs as objects on this host, in containers of Compose, and on Kubernetes."""

import json
import os
from typing import Annotated

import typer
from rich.table import Table

from fullrank.cli.objects import RunObject, taken
from fullrank.cli.options import (
    CertificatesOption,
    ConfigOption,
    JsonOption,
    LocalOption,
    OnOption,
    RunArgument,
    SetOption,
    TrustOption,
    UntilEndOption,
    VerboseOption,
    tls_of,
)
from fullrank.cli.places import PLACES, Place, at_once, found, names_of, place_on
from fullrank.cli.runs import RUNS, adopt, find_run, make_directory, meant
from fullrank.cli.say import say
from fullrank.cli.status import status
from fullrank.cli.terminal import Terminal
from fullrank.cli.this_host import ThisHost, begin
from fullrank.cli.train import continued, costs_of, go_on, of_new_run, write_settings
from fullrank.common.errors import ConfigError
from fullrank.config.layers import load
from fullrank.host.certificates import Role
from fullrank.host.run_directory import is_address, lock_launch

app = typer.Typer(no_args_is_help=True)


@app.command()
def submit(
    run: RunArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    on: OnOption = None,
    local: LocalOption = False,
) -> None:
    """Submit a new run, which trains on its own, whatever becomes of this terminal.

    On this host RUN is a new directory below runs/. On Compose it is a project, on Kubernetes the
    instance of an overlay, which --on may name by its file or directory; --config then is the whole
    run.toml of the containers.
    """
    layers = load(config, environ=os.environ, overrides=overrides or (), options={"name": run})
    place = place_on(on or "host")
    if not isinstance(place, ThisHost):
        _refuse(place, {"--set": overrides, "--local": local})
        place.submit(run, config)
    else:
        if (path := RUNS / run).exists():
            raise taken(run, place.name)
        sized = of_new_run(layers, local=local)
        for line in costs_of(sized):
            say(line)
        make_directory(path, exist_ok=False)
        write_settings(path, sized.config)
        begin(path, local=local)
    say(f"submitted; `fullrank run status {run}` shows it, `fullrank run stop {run}` stops it")


@app.command("list")
def list_runs(on: OnOption = None, as_json: JsonOption = False) -> None:
    """List the runs of this host, and those of Compose and Kubernetes where these answer."""
    places = list(PLACES.values()) if on is None else [place_on(on)]
    named = names_of(places, needed=on is not None)
    wanted = [(place, name) for place, names in named for name in names]
    runs = list[RunObject]()
    for (_, name), run in at_once(lambda each: each[0].look(each[1]), wanted):
        if isinstance(run, RunObject):
            runs.append(run)
        else:  # its files cannot be read
            say(f"{name}: {run}", error=True)
    if as_json:
        say(json.dumps([each._asdict() for each in runs]))
        return
    table = Table("run", "on", "state", "reason", "results", box=None)
    for each in runs:
        table.add_row(each.name, each.on, each.state, each.why(), each.results)
    Terminal().print(table)


app.command("status")(status)


@app.command()
def logs(run: RunArgument, on: OnOption = None, follow: UntilEndOption = False) -> None:
    """Print the log of a run's controller."""
    place, name = found(run, on)
    place.logs(name, follow=follow)


@app.command()
def stop(run: RunArgument, on: OnOption = None, certificates: CertificatesOption = None) -> None:
    """Stop a run, as by SIGTERM: finish the update, checkpoint, end; `run resume` goes on.

    Of RUN host:port of a controller, that one is ordered to stop, as by an administrator.
    """
    if is_address(run):
        order(run, "stop", certificates)
    else:
        place, name = found(run, on)
        say(place.stop(name))


@app.command()
def resume(
    run: RunArgument,
    on: OnOption = None,
    attach: Annotated[
        bool,
        typer.Option("--attach", help="Train in this terminal to the end; Ctrl-C stops the run."),
    ] = False,
    local: LocalOption = False,
    trust: TrustOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a run again, which goes on from its newest checkpoint or its store.

    Like a submitted run it trains on its own; with --attach it is shown live.
    """
    place, name = found(run, on)
    if not isinstance(place, ThisHost):
        _refuse(place, {"--attach": attach, "--local": local, "--trust": trust})
        place.resume(name)
    elif attach:
        go_on(find_run(name), local=local, trust=trust or (), verbose=verbose)
        return
    else:
        continued(path := find_run(name), trust or ())
        with lock_launch(path):
            adopt(path)
        begin(path, local=local, trust=trust or ())
    say(f"resumed; `fullrank run status {name}` shows it, `fullrank run stop {name}` stops it")


@app.command()
def order(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Directory, or host:port of the controller.")
    ],
    order: Annotated[str, typer.Argument(help="checkpoint, drain=LEARNER or iterations=NUMBER.")],
    certificates: CertificatesOption = None,
) -> None:
    """Give a controller an order of an administrator."""
    from fullrank.net.controller_client import give_order  # imports gRPC
    from fullrank.net.monitor import monitor_of

    tls = tls_of(certificates)
    address, security = monitor_of(meant(run), tls, port="controller", role=Role.ADMIN)
    say(give_order(address, order, security=security))


def _refuse(place: Place, options: dict[str, object]) -> None:
    """Refuse options of this host for a run elsewhere.

    Raises:
        ConfigError: One of them was given.
    """
    if given := [name for name, value in options.items() if value]:
        what = (
            f"{given[0]} is for runs of this host, and containers have their settings in --config"
        )
        raise ConfigError(f"{what}: drop it, or --on {place.name}")
