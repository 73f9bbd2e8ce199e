"""``fullrank straggler``: show or change the delays and faults that a sidecar injects."""

import json
from typing import Annotated, TypeAlias

import typer

from fullrank.cli.options import CertificatesOption, JsonOption, tls_of
from fullrank.cli.runs import find_run
from fullrank.cli.say import say
from fullrank.common.errors import ConfigError
from fullrank.config.faults import Fault
from fullrank.config.layers import load
from fullrank.config.tree import PluginSettings, as_tables
from fullrank.config.values import LOCAL
from fullrank.host.certificates import Role
from fullrank.host.run_directory import is_address, resolve
from fullrank.net.channel import Security
from fullrank.net.straggler import Injected, get_injection, set_injection

app = typer.Typer(no_args_is_help=True)

SidecarArgument: TypeAlias = Annotated[
    str,
    typer.Argument(help="Run directory, its name below runs/, or host:port of sidecar.control."),
]


@app.callback()
def _straggler() -> None:
    """Show or change the delays and faults that a straggler sidecar injects."""


@app.command("get")
def get_(
    sidecar: SidecarArgument, certificates: CertificatesOption = None, as_json: JsonOption = False
) -> None:
    """Print the delay model and the faults; requires the role of a monitor."""
    security = Security.configured(tls_of(certificates), Role.MONITOR)
    _show(get_injection(_control(sidecar), security=security), as_json=as_json)


@app.command("set")
def set_(
    sidecar: SidecarArgument,
    model: Annotated[
        str | None, typer.Option("--model", help="Delay model: none, fixed_k, exponential, ...")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a parameter of the model; may be repeated."
        ),
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="'KIND KEY=VALUE ...'",
            help="drop, throttle, corrupt or hold; may be repeated. Replaces the present faults; "
            "none: removes them.",
        ),
    ] = None,
    certificates: CertificatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the delay model, the faults, or both at once, and print the result.

    With certificates it requires the role of an administrator.
    """
    if parameters and model is None:
        raise ConfigError("--set gives a parameter of a delay model; name the model with --model")
    injected = set_injection(
        _control(sidecar),
        model=None if model is None else _model(model, parameters or []),
        faults=None if not faults else _faults(faults),
        security=Security.configured(tls_of(certificates), Role.ADMIN),
    )
    _show(injected, as_json=as_json)


def _control(sidecar: str) -> str:
    """Address of a sidecar's control port, which it has announced in its run directory."""
    if is_address(sidecar):
        return sidecar
    return resolve(LOCAL, find_run(sidecar), "straggler-control")


def _model(name: str, parameters: list[str]) -> PluginSettings:
    keys = [f"name={name}", *parameters]
    return load(overrides=[f"stragglers.{key}" for key in keys]).config.stragglers


def _faults(texts: list[str]) -> tuple[Fault, ...]:
    """Faults from texts such as ``hold learners=[1,2] iterations=[7]``."""
    if texts == ["none"]:
        return ()
    tables = []
    for text in texts:
        kind, *pairs = text.split()
        tables.append("{" + ", ".join([f'kind = "{kind}"', *pairs]) + "}")
    return load(overrides=[f"sidecar.faults=[{', '.join(tables)}]"]).config.sidecar.faults


def _show(injected: Injected, *, as_json: bool) -> None:
    model = as_tables(injected.model)
    faults = [as_tables(fault) for fault in injected.faults]
    if as_json:
        say(json.dumps({"model": model, "faults": faults}))
        return
    say(f"model  {_words(model.pop('name'), model)}")
    for fault in faults:
        say(f"fault  {_words(fault.pop('kind'), fault)}")


def _words(name: str, keys: dict[str, object]) -> str:
    """Words in the syntax of ``set``; empty lists, which mean all, are omitted."""
    given = [f"{key}={json.dumps(value)}" for key, value in keys.items() if value != []]
    return " ".join([name, *given]).replace(", ", ",")
