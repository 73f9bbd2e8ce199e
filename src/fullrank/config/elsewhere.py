"""Configurations from elsewhere, whose local settings do not count.

The run directory of another, the Welcome of a controller and the answer of a monitor may name any
path, address or device of this machine. Such settings are dropped, and those of the reader's own
configuration take their places.
"""

import os
from collections.abc import Hashable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from fullrank.common.errors import ConfigError, Malformed
from fullrank.common.foreign import parse_json, read_regular
from fullrank.common.text import plain
from fullrank.common.types import SettingReach
from fullrank.config.layers import load, resolve
from fullrank.config.leaves import (
    ENVIRONMENT_PREFIX,
    PLUGINS,
    SECTIONS,
    SETTINGS,
    TABLES,
    ConfigLayer,
    Key,
    flatten,
    name_of,
    read_layer,
)
from fullrank.config.tree import RunConfig, as_tables
from fullrank.config.trust import digest_name, keep, kept, state_folder
from fullrank.runs.identity import CONFIGURATION, IDENTITY, read_identity
from fullrank.runs.statistics import flat
from fullrank.stragglers import delay_models

RUNS = "runs"
"""Folder of the runs that this user has started or resumed."""
NOT_BEGUN = ""
"""Stands for the id of a run that no controller has held yet."""
OF_WORK = ("collectors", "compute", "ranks", "stragglers")
"""Tables of which local settings tell, too, how a run computes."""
_DEFAULTS = flatten(as_tables(RunConfig()), "default")


class FromElsewhere(NamedTuple):
    """A configuration with the reader's own local settings."""

    config: RunConfig
    dropped: Mapping[str, Any]
    """Local settings that it named by dotted key: neither a default nor the reader's own."""


def from_elsewhere(
    text: str | bytes, *, origin: str = "config.toml", own: RunConfig | None = None
) -> FromElsewhere:
    """Read the text that ``to_toml`` wrote elsewhere.

    Args:
        text: The text.
        origin: Names it in messages.
        own: The reader's own configuration; None: the defaults.

    Raises:
        ConfigError: The text is not TOML, or holds an unknown key or an impossible value.
        VersionMismatch: The text is of a later format.
    """
    layer, dropped = portable(read_layer(text, origin), own)
    return FromElsewhere(resolve([layer]).config, dropped)


def portable(
    layer: ConfigLayer, own: RunConfig | None = None
) -> tuple[ConfigLayer, dict[str, Any]]:
    """Put the reader's own local settings in the places of those of a layer from elsewhere.

    Returns:
        The layer, and the values that it lost by dotted key, as in ``FromElsewhere``.
    """
    local = {key for key in layer if is_local(key, layer)}
    chosen = _local_settings(flatten(as_tables(own or RunConfig()), "this process"), like=layer)
    dropped = {
        ".".join(key): layer[key].value
        for key in local
        if layer[key].value
        not in (_default(key, layer), *(chosen[key][:1] if key in chosen else ()))
    }
    return {key: leaf for key, leaf in layer.items() if key not in local} | chosen, dropped


def require(dropped: Mapping[str, Any], key: str, *, origin: str) -> None:
    """Refuse a configuration from elsewhere that is no use without a local setting.

    Raises:
        ConfigError: The setting was dropped.
    """
    if key in dropped:
        variable = ENVIRONMENT_PREFIX + key.upper().replace(".", "__")
        raise ConfigError(
            f"{origin} comes from elsewhere, and its {key} = {plain(dropped[key])} names a "
            f"resource of another machine: set {variable}, or {key} in your own configuration"
        )


def device_kind(elsewhere: FromElsewhere) -> str:
    """Return the kind of device that a run computes on: ``auto``, ``cpu`` or ``cuda``.

    Its kind decides about bits; which device it is, is the reader's own.
    """
    named = elsewhere.dropped.get("compute.device", elsewhere.config.compute.device)
    kind = str(named).partition(":")[0]
    return kind if kind in ("cpu", "cuda") else "auto"


def compared(config: RunConfig) -> dict[str, Hashable]:
    """Return the settings by which runs are told apart, by dotted key.

    Local ones do not count, but for those of ``OF_WORK``; of a device its kind does.
    """
    tables = as_tables(config)
    layer = flatten(tables, "")
    settings = {
        key: value
        for key, value in flat(tables).items()
        if (path := tuple(key.split(".")))[0] in OF_WORK or not is_local(path, layer)
    }
    return settings | {"compute.device": config.compute.device.partition(":")[0]}


def is_local(key: Key, layer: ConfigLayer) -> bool:
    """Return whether a setting of a layer names a resource of one machine."""
    if key[0] in PLUGINS and key[1:] and key[1] not in SECTIONS[key[0]]:
        return _is_local_parameter(key, layer)
    return reaches().get(".".join(key[:2])) is SettingReach.LOCAL


@cache
def reaches() -> dict[str, SettingReach]:
    """Return the mark of each setting by its dotted key: its own, or that of its table."""
    marks = {}
    for table, hint in get_type_hints(RunConfig, include_extras=True).items():
        whole = reach_of(hint)
        for name, own in _settings(table).items():
            mark = reach_of(own) or whole
            assert mark is not None, f"{table}.{name} is neither local nor portable"
            marks[f"{table}.{name}" if name else table] = mark
    return marks


def reach_of(hint: Any) -> SettingReach | None:
    """Return the mark in the metadata of a type."""
    return next((part for part in get_args(hint)[1:] if isinstance(part, SettingReach)), None)


def read_run(directory: Path, environ: Mapping[str, str]) -> FromElsewhere:
    """Read the configuration stored with a run, whole if this user has started or resumed it there.

    Args:
        directory: The run's directory.
        environ: Variables such as ``os.environ``, which set the reader's own local settings.

    Raises:
        FullrankError: It cannot be read.
    """
    path = directory / CONFIGURATION
    try:
        text = read_regular(path, SETTINGS.size)
    except Malformed as error:
        raise Malformed(f"{error}; is this a run?") from error
    if not text.strip():
        raise Malformed(f"{path} is empty; restore it from a copy")
    if is_own_run(directory):
        return FromElsewhere(resolve([read_layer(text, str(path))]).config, {})
    return from_elsewhere(text, origin=str(path), own=load(environ=environ).config)


def remember_run(directory: Path, run: str = NOT_BEGUN) -> None:
    """Keep that this user has started or resumed a run in a directory, or is going to start one."""
    folder, place = state_folder(RUNS), str(directory.resolve())
    if folder is not None:
        keep(folder / f"{digest_name(place)}.json", {"directory": place, "run": run})


def is_own_run(directory: Path) -> bool:
    """Return whether this user has started or resumed the run there."""
    folder, place = state_folder(RUNS), str(directory.resolve())
    if folder is None or not (text := kept(folder / f"{digest_name(place)}.json")):
        return False
    try:
        begun = os.path.lexists(directory / IDENTITY)
        run = read_identity(directory)["run"] if begun else NOT_BEGUN
        return bool(parse_json(text, origin="the runs of this user")["run"] == run)
    except (Malformed, KeyError, TypeError):
        return False


def _settings(table: str) -> dict[str, Any]:
    """Types of a table's own settings; an empty name stands for a table that is one value."""
    if table not in SECTIONS:
        return {"": None}
    hints = get_type_hints(type(TABLES[table]), include_extras=True)
    return {name: hints[name] for name in SECTIONS[table]}


def _local_settings(reader: ConfigLayer, *, like: ConfigLayer) -> ConfigLayer:
    """The local settings of the reader that the other configuration can have."""
    same = {table: name_of(reader, (table, "name")) for table in ("stragglers",)}
    return {
        key: leaf
        for key, leaf in reader.items()
        if is_local(key, reader)
        and (key[0] not in same or same[key[0]] == name_of(like, (key[0], "name")))
    }


def _is_local_parameter(key: Key, layer: ConfigLayer) -> bool:
    """Return whether a plug-in's class marks a parameter; only a delay model's may be local."""
    name = name_of(layer, (key[0], "name"))
    if key[0] != "stragglers" or not isinstance(name, str):
        return False
    try:
        hints = get_type_hints(delay_models.get(name), include_extras=True)
    except ConfigError:  # a plug-in that is not installed here, which opens nothing
        return False
    return reach_of(hints.get(key[1])) is SettingReach.LOCAL


def _default(key: Key, layer: ConfigLayer) -> Any:
    """The default of a local setting, or of such a parameter of a delay model."""
    if key[0] not in PLUGINS:
        return _DEFAULTS[key].value if key in _DEFAULTS else None
    cls: Any = delay_models.get(name_of(layer, (key[0], "name")))
    return next((each.default for each in fields(cls) if each.name == key[1]), None)
