"""Layers of configuration: defaults, file, environment, ``--set`` and options; the last one wins.

A layer is a set of leaves: dotted keys with a value and an origin. Leaves are merged before the
whole tree is validated once, so that every error message can name the key and its origin.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError

from fullrank.algorithms.base import Problem
from fullrank.common.errors import ConfigError
from fullrank.common.formats import check_format
from fullrank.common.registry import nearest
from fullrank.common.types import JSON
from fullrank.config.plugins import (
    EPISODIC,
    PER_AGENT,
    SIZING,
    agents_of,
    check_delays,
    complete,
    learners_of,
    problem_of,
)
from fullrank.config.renames import check_name
from fullrank.config.tree import RunConfig, as_tables
from fullrank.environments.base import is_adapted

ENVIRONMENT_PREFIX = "FULLRANK__"
"""``FULLRANK__CODE__NAME`` is ``code.name``."""

Key: TypeAlias = tuple[str, ...]


class Leaf(NamedTuple):
    """A value and its origin."""

    value: Any
    origin: str


ConfigLayer: TypeAlias = dict[Key, Leaf]

_DEFAULTS = RunConfig()
_TABLES = {table.name: getattr(_DEFAULTS, table.name) for table in fields(RunConfig)}
_SECTIONS = {
    section: [setting.name for setting in fields(table) if setting.name != "params"]
    for section, table in _TABLES.items()
    if is_dataclass(table)
}
_PLUGINS = {section for section, table in _TABLES.items() if hasattr(table, "params")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The effective configuration and the origin of each value."""

    config: RunConfig
    origin: Mapping[str, str]
    """Dotted key to ``default``, the file, ``environment NAME``, ``--set`` or ``option``; a chosen
    number of learners names the code and the agents."""
    counted_agents: int = 0
    """M where ``size`` has made the environment to count its agents, else 0."""
    problem: Problem | None = None
    """The algorithm's problem where ``size`` has made the environment to know it."""

    def agents(self) -> int:
        """Return M; makes the environment if it alone knows and ``size`` has not asked it.

        Raises:
            EnvironmentFailed: The environment cannot be made.
        """
        return self.counted_agents or agents_of(self.config)

    def check(self) -> "Resolved":
        """Validate the plug-in tables against their classes and fill in their defaults.

        Raises:
            ConfigError: Unknown name, unknown or missing parameter, wrong type, or a value that
                the class refuses.
            EnvironmentFailed: The number of agents is the environment's own, and it cannot be made.
        """
        sized = self.size()
        return sized._with(complete(sized.config, sized.origin, tables=["algorithm"]))

    def size(self) -> "Resolved":
        """Validate the plug-in tables but [algorithm], and choose ``learners`` where it is 0.

        Unlike ``check`` this imports no torch for the algorithms of ``PER_AGENT``.

        Raises:
            ConfigError: As for ``check``.
            EnvironmentFailed: The number of agents is the environment's own, and it cannot be made.
        """
        sized = self._with(complete(self.config, self.origin, tables=SIZING))
        if not sized.config.learners:
            sized = sized._with_learners()
        check_delays(sized.config)
        return sized

    def _with_learners(self) -> "Resolved":
        config, problem, agents = self.config, None, 0
        if config.algorithm.name in PER_AGENT:
            units = agents = agents_of(config)
            learners, counted = learners_of(config, units=units), f"{units} agents"
        else:
            problem = problem_of(complete(config, self.origin, tables=["algorithm"]))
            units = len(problem.units)
            learners = learners_of(config, units=units, target=problem.target)
            counted = f"{units} {'units' if problem.units[0].agent is None else 'agents'}"
        return Resolved(
            config=replace(config, learners=learners),
            origin={**self.origin, "learners": f"default: {config.code.name} with {counted}"},
            counted_agents=agents,
            problem=problem,
        )

    def _with(self, config: RunConfig) -> "Resolved":
        return replace(self, config=config, origin=_origins(config) | dict(self.origin))


def load(
    config_path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Resolved:
    """Read all layers and validate the tree; ``Resolved.check`` validates the plug-in tables.

    Args:
        config_path: A TOML file.
        environ: Variables such as ``os.environ``; names that begin with ``FULLRANK__`` count.
        overrides: ``key=value`` texts of ``--set``; a value that is not valid TOML is text.
        options: Dotted keys to the values of typed command-line options; None: not given.

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


def resolve(layers: Iterable[ConfigLayer]) -> Resolved:
    """Merge the layers and validate the tree."""
    leaves: ConfigLayer = {}
    for layer in layers:
        for key, leaf in layer.items():
            _check_key(key, leaf.origin)
        leaves = _merge(leaves, layer)
    try:
        config = _tree().validate_json(_nested(leaves), strict=True)
    except ValidationError as error:
        raise ConfigError(_explain(error, leaves)) from error
    _check_together(config)
    given = {".".join(key): leaf.origin for key, leaf in leaves.items()}
    return Resolved(config=config, origin=_origins(config) | given)


@cache
def _tree() -> TypeAdapter[RunConfig]:
    """Return the validator of the tree, whose construction takes tens of milliseconds."""
    return TypeAdapter(RunConfig)


def read_toml(text: str, origin: str) -> JSON:
    """Parse TOML; ``ConfigError`` names the origin and the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} is not valid TOML: {error}") from error


def read_layer(text: str, origin: str) -> ConfigLayer:
    """The leaves of a configuration file.

    Raises:
        ConfigError: The text is not TOML; the message names the origin and the line.
        VersionMismatch: The file is of a later format.
    """
    table = read_toml(text, origin)
    check_format(table.pop("format", 1), where=origin)
    return flatten(table, origin)


def flatten(table: Mapping[str, Any], origin: str, prefix: Key = ()) -> ConfigLayer:
    """The leaves of nested tables."""
    leaves: ConfigLayer = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, origin, (*prefix, key))
        else:
            leaves[(*prefix, key)] = Leaf(value, origin)
    return leaves


def _file(path: Path) -> ConfigLayer:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration {path} is not UTF-8 text") from error
    return read_layer(text, str(path))


def _environment(environ: Mapping[str, str]) -> ConfigLayer:
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


def _merge(lower: ConfigLayer, upper: ConfigLayer) -> ConfigLayer:
    """Leaves of both layers; naming another class drops the parameters of the old one."""
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


def _name(leaves: ConfigLayer, key: Key) -> Any:
    return leaves[key].value if key in leaves else _TABLES[key[0]].name


def _overlap(key: Key, other: Key) -> bool:
    """True if the keys are equal or one is a table that contains the other."""
    return all(a == b for a, b in zip(key, other, strict=False))


def _nested(leaves: ConfigLayer) -> str:
    # A plug-in table without a name keeps its default name. The default number of agents applies to
    # the default environment only, the default copies to environments that step them as arrays, and
    # the default numbers to algorithms that learn from single transitions.
    root: JSON = {section: {"name": _TABLES[section].name, "params": {}} for section in _PLUGINS}
    if _name(leaves, ("environment", "name")) != _DEFAULTS.environment.name:
        root["environment"]["agents"] = 0
    if is_adapted(_name(leaves, ("environment", "name"))):
        root["environment"]["copies"], root["collect"] = 4, {"steps": 25}
    if _name(leaves, ("algorithm", "name")) in EPISODIC:
        root |= {"iterations": 2_000, "collect": {"warmup": 2_000, "warmup_copies": 8}}
        root["environment"].setdefault("copies", 8)
    for key, leaf in leaves.items():
        free = key[0] in _PLUGINS and key[1] not in _SECTIONS[key[0]]
        path = (key[0], "params", *key[1:]) if free else key
        table = root
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = leaf.value
    return json.dumps(root, default=str)


def _explain(error: ValidationError, leaves: ConfigLayer) -> str:
    """One line about the first error: key, value, origin and expected value."""
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
