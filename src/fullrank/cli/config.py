"""``fullrank config``: the effective configuration."""

from collections.abc import Iterator
from typing import Annotated

import typer

from fullrank.cli.options import (
    ConfigOption,
    JsonOption,
    SetOption,
    TopologyOption,
    resolve,
)
from fullrank.cli.say import say, say_json
from fullrank.config.layers import Resolved
from fullrank.config.toml import to_toml
from fullrank.config.tree import as_tables

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _config() -> None:
    """Show the effective configuration and its origins."""


@app.command()
def show(
    config: ConfigOption = None,
    overrides: SetOption = None,
    topology: TopologyOption = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Print the origin of each value.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting as TOML.

    Later layers win: defaults, topology, file, environment, --set.
    """
    resolved = resolve(config, overrides, topology=topology)
    if as_json:
        facts = {"config": as_tables(resolved.config), "origin": dict(resolved.origin)}
        say_json(facts)
    elif origin:
        say(*_annotated(resolved))
    else:
        say(*to_toml(resolved.config).splitlines())


def _annotated(resolved: Resolved) -> Iterator[str]:
    """Lines of TOML, with the origin of each value as a comment."""
    lines = to_toml(resolved.config).splitlines()
    width = max(map(len, lines))
    table = ""
    for line in lines:
        if line.startswith("["):
            table = line.strip("[]") + "."
        key, equals, _ = line.partition(" = ")
        origin = _origin(resolved, table + key) if equals else ""
        yield f"{line:{width}}  # {origin}" if origin else line


def _origin(resolved: Resolved, key: str) -> str:
    """Origin of a key; all origins if its value is a table that several layers filled."""
    origins = [
        origin
        for name, origin in resolved.origin.items()
        if name == key or name.startswith(f"{key}.")
    ]
    return ", ".join(dict.fromkeys(origins))
