"""Leaves of the configuration: dotted keys, each with a value and the origin that set it.

A file, the environment and ``--set`` each give a layer of leaves.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fullrank.common.errors import ConfigError, Malformed
from fullrank.common.foreign import Bounds, check_format, parse_toml, read_regular
from fullrank.common.registry import nearest
from fullrank.common.types import JSON
from fullrank.config.tree import RunConfig

ENVIRONMENT_PREFIX = "FULLRANK__"
"""``FULLRANK__CODE__NAME`` is ``code.name``."""

Key: TypeAlias = tuple[str, ...]


class Leaf(NamedTuple):
    """A value and its origin."""

    value: Any
    origin: str


ConfigLayer: TypeAlias = dict[Key, Leaf]

_DEFAULTS = RunConfig()
TABLES = {table.name: getattr(_DEFAULTS, table.name) for table in fields(RunConfig)}
"""Tables and single settings at the top of the tree, with their defaults."""
SECTIONS = {
    section: [setting.name for setting in fields(table) if setting.name != "params"]
    for section, table in TABLES.items()
    if is_dataclass(table)
}
"""Tables and their own keys, without the parameters of plug-ins."""
PLUGINS = {section for section, table in TABLES.items() if hasattr(table, "params")}
"""Tables that name a plug-in."""

SETTINGS = Bounds(finite=False)
"""Bounds of the text of a configuration, in which some settings may be infinite."""


def read_toml(text: str | bytes, origin: str) -> JSON:
    """Parse TOML; ``ConfigError`` names the origin and the line."""
    try:
        return parse_toml(text, origin=origin, bounds=SETTINGS)
    except Malformed as error:
        raise ConfigError(str(error)) from error


WITHDRAWN: Mapping[Key, str] = {
    ("controller", "deadline_factor"): "it is 5",
    ("controller", "min_tolerance"): "C is rebuilt once its guarantee is gone",
    ("controller", "streams_per_certificate"): "it is 1024",
    ("controller", "streams_per_host"): "it is 256",
    ("controller", "least_deadline_s"): "it is the lesser of 5 and controller.deadline_s",
    ("controller", "stuck_after_s"): "it is ten times controller.deadline_s",
    ("controller", "join_deadline_s"): "it is twice controller.deadline_s",
    ("checkpoint", "mirror"): "store.url takes its place",
    ("ranks", "backend"): "it follows from compute.device",
    ("ranks", "exact"): "gradients are added in float64",
    ("ranks", "timeout_s"): "it is controller.deadline_s",
    ("containers", "share"): "it is that of the paper",
    ("containers", "capacity"): "it is that of the paper",
    ("containers", "floor"): "it is that of the paper",
    ("containers", "exponent"): "it is that of the paper",
}
"""Settings of release 0.3 that are none since, and their values; runs of 0.3 have them."""


def read_layer(text: str | bytes, origin: str) -> ConfigLayer:
    """The leaves of a configuration file; one that a run has stored may have withdrawn settings.

    Raises:
        ConfigError: The text is not TOML; the message names the origin and the line.
        VersionMismatch: The file is of a later format.
    """
    table = read_toml(text, origin)
    stored = "format" in table
    check_format(table.pop("format", 1), where=origin)
    leaves = flatten(table, origin)
    return {key: leaves[key] for key in leaves if not (stored and key in WITHDRAWN)}


def flatten(table: Mapping[str, Any], origin: str, prefix: Key = ()) -> ConfigLayer:
    """The leaves of nested tables."""
    leaves: ConfigLayer = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, origin, (*prefix, key))
        else:
            leaves[(*prefix, key)] = Leaf(value, origin)
    return leaves


def file_layer(path: Path) -> ConfigLayer:
    """The leaves of the configuration file at a path.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
        VersionMismatch: The file is of a later format.
    """
    try:
        text = read_regular(path, SETTINGS.size)
    except Malformed as error:
        raise ConfigError(str(error)) from error
    return read_layer(text, str(path))


def environment_layer(environ: Mapping[str, str]) -> ConfigLayer:
    """The leaves of the variables whose names begin with ``ENVIRONMENT_PREFIX``; empty: none."""
    given = {
        tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")): name
        for name in sorted(environ)
        if name.startswith(ENVIRONMENT_PREFIX) and environ[name]
    }
    return {
        key: Leaf(_parse(key, environ[name]), f"environment {name}") for key, name in given.items()
    }


def override(text: str) -> tuple[Key, Leaf]:
    """The leaf of a ``key=value`` of ``--set``; ``ConfigError`` without an equals sign."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: expected key=value, for example code.tolerance=2")
    path = tuple(key.strip().split("."))
    return path, Leaf(_parse(path, value.strip()), "--set")


def _parse(key: Key, text: str) -> Any:
    """The value of a text in TOML; of a setting that is text, and where it is no TOML, the text."""
    try:
        document = parse_toml(f"value = {text}", origin="", bounds=SETTINGS)
    except Malformed:
        return text
    value = document.pop("value")
    kinds = str if _is_text(key) else bool | int | float | str | list | dict
    return value if isinstance(value, kinds) and not document else text


def _is_text(key: Key) -> bool:
    """True if the default of a setting is a text."""
    default: Any = _DEFAULTS
    for name in key:
        default = getattr(default, name, None)
    return isinstance(default, str)


def check_key(key: Key, origin: str) -> None:
    """Refuse a key that the tree does not have.

    Raises:
        ConfigError: The key is unknown; the message has the nearest name.
    """
    dotted, section = ".".join(key), key[0]
    if key in WITHDRAWN:
        raise ConfigError(f"{dotted} in {origin} is no setting any more: {WITHDRAWN[key]}; drop it")
    if section not in TABLES:
        raise ConfigError(f"unknown key {dotted!r} in {origin}{nearest(section, list(TABLES))}")
    if section not in SECTIONS:
        if len(key) > 1:
            raise ConfigError(f"unknown key {dotted!r} in {origin}; {section!r} is one value")
        return
    keys = [f"{section}.{name}" for name in SECTIONS[section]]
    if len(key) == 1:
        raise ConfigError(f"{dotted!r} in {origin} is a table; set its keys: {', '.join(keys)}")
    if section not in PLUGINS and dotted not in keys:
        raise ConfigError(f"unknown key {dotted!r} in {origin}{nearest(dotted, keys)}")


def merge(lower: ConfigLayer, upper: ConfigLayer) -> ConfigLayer:
    """Leaves of both layers, of which the upper wins; another class drops the old parameters."""
    renamed = {
        key[0]
        for key, leaf in upper.items()
        if key[1:] == ("name",) and leaf.value != name_of(lower, key)
    }
    kept = {
        key: leaf
        for key, leaf in lower.items()
        if not (key[0] in renamed and key[1] not in SECTIONS[key[0]])
        and not any(_overlap(key, other) for other in upper)
    }
    return kept | upper


def name_of(leaves: ConfigLayer, key: Key) -> Any:
    """The name of a table's plug-in, or its default."""
    return leaves[key].value if key in leaves else TABLES[key[0]].name


def _overlap(key: Key, other: Key) -> bool:
    """True if the keys are equal or one is a table that contains the other."""
    return all(a == b for a, b in zip(key, other, strict=False))
