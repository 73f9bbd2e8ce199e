"""Layers of configuration, last wins: defaults, file, environment, ``--set`` and options.

A layer is a set of leaves, dotted keys with a value and an origin. Merging leaves and then
validating the whole tree once keeps every error message able to name the key and its origin.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError

from fullrank.common.errors import ConfigError
from fullrank.common.formats import check_format
from fullrank.common.registry import nearest
from fullrank.common.types import JSON
from fullrank.config.plugins import (
    SIZING,
    agents_of,
    check_delays,
    complete,
    learners_of,
)
from fullrank.config.renames import check_name
from fullrank.config.tree import RunConfig, as_tables

ENVIRONMENT_PREFIX = "FULLRANK__"
"""``FULLRANK__CODE__NAME`` is ``code.name``."""

Key: TypeAlias = tuple[str, ...]


class Leaf(NamedTuple):
    """A value and where it came from."""

    value: Any
    origin: str


Layer: TypeAlias = dict[Key, Leaf]

_DEFAULTS = RunConfig()
_TABLES = {each.name: getattr(_DEFAULTS, each.name) for each in fields(RunConfig)}
_SECTIONS = {
    section: [each.name for each in fields(table) if each.name != "params"]
    for section, table in _TABLES.items()
    if is_dataclass(table)
}
_PLUGINS = {section for section, table in _TABLES.items() if hasattr(table, "params")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The effective configuration and where each of its values came from."""

    config: RunConfig
    origin: Mapping[str, str]
    """Dotted key to ``default``, the file, ``environment NAME``, ``--set`` or ``option``."""

    def check(self) -> "Resolved":
        """Validate the plug-in tables against their classes and fill in their defaults.

        Raises:
            ConfigError: Unknown name, unknown or missing parameter, wrong type, or a value that
                the class refuses.
        """
        sized = self.size()
        return sized._with(complete(sized.config, sized.origin, tables=["algorithm"]))

    def size(self) -> "Resolved":
        """Validate what decides the sizes of a run, and choose ``learners`` where it is 0.

        Unlike ``check`` this imports no torch, and leaves [algorithm] alone.

        Raises:
            ConfigError: As for ``check``.
            EnvironmentFailed: The environment must be made to know its agents, and cannot be.
        """
        sized = self._with(complete(self.config, self.origin, tables=SIZING))
        if not sized.config.learners:
            sized = sized._with_learners(agents_of(sized.config))
        check_delays(sized.config)
        return sized

    def _with_learners(self, agents: int) -> "Resolved":
        config = replace(self.config, learners=learners_of(self.config, units=agents))
        origin = f"default: {config.code.name} with {agents} agents"
        return Resolved(config=config, origin={**self.origin, "learners": origin})

    def _with(self, config: RunConfig) -> "Resolved":
        return Resolved(config=config, origin=_origins(config) | dict(self.origin))


def load(
    config_path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Resolved:
    """Read and validate all layers; plug-in tables are left to ``Resolved.check``.

    Args:
        config_path: A TOML file.
        environ: Variables such as ``os.environ``; those that begin ``FULLRANK__`` count.
        overrides: ``key=value`` texts of ``--set``; values are TOML where they can be, else text.
        options: Dotted keys to values of typed command-line options; None means not given.

    Raises:
        ConfigError: The file cannot be read, a key is unknown or a value is impossible.
    """
    given = {key: value for key, value in (options or {}).items() if value is not None}
    command_line = [_override(text) for text in overrides]
    command_line += [(tuple(key.split(".")), Leaf(given[key], "option")) for key in given]
    layers = [
        _file(config_path) if config_path is not None else {},
        _environment(environ or {}),
        dict(command_line),
    ]
    return resolve(layers)


def resolve(layers: Iterable[Layer]) -> Resolved:
    """Merge the layers and validate the tree."""
    leaves: Layer = {}
    for layer in layers:
        for key, leaf in layer.items():
            _check_key(key, leaf.origin)
        leaves = _merge(leaves, layer)
    try:
        config = TypeAdapter(RunConfig).validate_json(_nested(leaves), strict=True)
    except ValidationError as error:
        raise ConfigError(_explain(error, leaves)) from error
    _check_together(config)
    given = {".".join(key): leaf.origin for key, leaf in leaves.items()}
    return Resolved(config=config, origin=_origins(config) | given)


def read_toml(text: str, origin: str) -> JSON:
    """Parse TOML; ``ConfigError`` names the origin and the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} is not valid TOML: {error}") from error


def read_layer(text: str, origin: str) -> Layer:
    """The leaves of a configuration file.

    Raises:
        ConfigError: The text is not TOML; the message names the origin and the line.
        VersionMismatch: The file is of a later format.
    """
    table = read_toml(text, origin)
    check_format(table.pop("format", 1), where=origin)
    return flatten(table, origin)


def flatten(table: Mapping[str, Any], origin: str, prefix: Key = ()) -> Layer:
    """The leaves of nested tables."""
    leaves: Layer = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, origin, (*prefix, key))
        else:
            leaves[(*prefix, key)] = Leaf(value, origin)
    return leaves


def _file(path: Path) -> Layer:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration {path} is not UTF-8 text") from error
    return read_layer(text, str(path))


def _environment(environ: Mapping[str, str]) -> Layer:
    return {
        tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")): Leaf(
            _parse(environ[name]), f"environment {name}"
        )
        for name in sorted(environ)
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def _override(text: str) -> tuple[Key, Leaf]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: expected key=value, for example code.tolerance=2")
    return tuple(key.strip().split(".")), Leaf(_parse(value.strip()), "--set")


def _parse(text: str) -> Any:
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = document.pop("value")
    plain = isinstance(value, bool | int | float | str | list | dict) and not document
    return value if plain else text


def _check_key(key: Key, origin: str) -> None:
    dotted, section = ".".join(key), key[0]
    check_name(dotted, origin)
    if section not in _TABLES:
        raise ConfigError(f"unknown key {dotted!r} in {origin}{nearest(section, list(_TABLES))}")
    if section not in _SECTIONS:
        if len(key) > 1:
            raise ConfigError(f"unknown key {dotted!r} in {origin}; {section!r} is one value")
        return
    keys = [f"{section}.{name}" for name in _SECTIONS[section]]
    if len(key) == 1:
        raise ConfigError(f"{dotted!r} in {origin} is a table; set its keys: {', '.join(keys)}")
    if section not in _PLUGINS and dotted not in keys:
        raise ConfigError(f"unknown key {dotted!r} in {origin}{nearest(dotted, keys)}")


def _merge(lower: Layer, upper: Layer) -> Layer:
    """Leaves of both, ``upper`` first; naming another class drops the old one's parameters."""
    renamed = {
        key[0]
        for key, leaf in upper.items()
        if key[1:] == ("name",) and leaf.value != _name(lower, key)
    }
    kept = {
        key: leaf
        for key, leaf in lower.items()
        if not (key[0] in renamed and key[1] not in _SECTIONS[key[0]])
        and not any(_overlap(key, other) for other in upper)
    }
    return kept | upper


def _name(leaves: Layer, key: Key) -> Any:
    return leaves[key].value if key in leaves else _TABLES[key[0]].name


def _overlap(key: Key, other: Key) -> bool:
    """Whether one key is the other, or a table that holds it."""
    return all(a == b for a, b in zip(key, other, strict=False))


def _nested(leaves: Layer) -> str:
    # A plug-in table that is given without its name keeps its default name. The default number of
    # agents belongs to the default environment; another one has its own.
    root: JSON = {section: {"name": _TABLES[section].name, "params": {}} for section in _PLUGINS}
    if _name(leaves, ("environment", "name")) != _DEFAULTS.environment.name:
        root["environment"]["agents"] = 0
    for key, leaf in leaves.items():
        free = key[0] in _PLUGINS and key[1] not in _SECTIONS[key[0]]
        path = (key[0], "params", *key[1:]) if free else key
        table = root
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = leaf.value
    return json.dumps(root, default=str)


def _explain(error: ValidationError, leaves: Layer) -> str:
    """One line for the first fault: key, value, origin, and what is expected."""
    fault = error.errors()[0]
    key = tuple(str(part) for part in fault["loc"])
    expected = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    leaf = next((leaves[key[:n]] for n in range(len(key), 0, -1) if key[:n] in leaves), None)
    return f"{'.'.join(key)} = {leaf.value!r} in {leaf.origin}: {expected}" if leaf else str(error)


def _origins(config: RunConfig) -> dict[str, str]:
    return {
        ".".join(key): leaf.origin for key, leaf in flatten(as_tables(config), "default").items()
    }


def _check_together(config: RunConfig) -> None:
    controller = config.controller
    if controller.lost_after_s <= controller.heartbeat_s:
        raise ConfigError(
            f"controller.lost_after_s = {controller.lost_after_s} must exceed "
            f"controller.heartbeat_s = {controller.heartbeat_s}"
        )
    if config.replay.capacity < config.collect.warmup:
        raise ConfigError(
            f"replay.capacity = {config.replay.capacity} cannot hold the warm-up of "
            f"collect.warmup = {config.collect.warmup} transitions"
        )
