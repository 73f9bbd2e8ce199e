"""Layers of configuration: defaults, topology, file, environment, ``--set`` and options.

The last one wins.

A layer is a set of leaves: dotted keys with a value and an origin. Leaves are merged before the
whole tree is validated once, so that every error message can name the key and its origin.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.problem import Problem
from fullrank.common.errors import ConfigError
from fullrank.common.foreign import shown
from fullrank.common.types import JSON, Matrix
from fullrank.config.collection import refusal_of
from fullrank.config.leaves import (
    PLUGINS,
    SECTIONS,
    TABLES,
    ConfigLayer,
    Leaf,
    check_key,
    environment_layer,
    file_layer,
    flatten,
    merge,
    name_of,
    override,
)
from fullrank.config.plugins import (
    ON_POLICY,
    PER_AGENT,
    SIZING,
    check_declared,
    check_delays,
    complete,
    learners_of,
    learns_episodes,
    problem_of,
    spec_of,
)
from fullrank.config.topologies import topology_layer
from fullrank.config.tree import MOST_LEARNERS, RunConfig, as_tables
from fullrank.environments.base import is_adapted


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The effective configuration and the origin of each value."""

    config: RunConfig
    origin: Mapping[str, str]
    """Dotted key to ``default``, the file, ``environment NAME``, ``--set`` or ``option``; a chosen
    number of learners names the code and the agents."""
    environment: EnvironmentSpec | None = None
    """Facts about the environment if it has been made to ask it."""

    def agents(self) -> int:
        """Return M; makes the environment if it alone knows and has not been asked.

        Raises:
            EnvironmentFailed: The environment cannot be made.
        """
        return self.config.environment.agents or len(self._asked().agents)

    def problem(self) -> Problem:
        """Return the algorithm's problem; makes the environment if it has not been asked.

        Raises:
            ConfigError: The table [algorithm] is wrong, or the algorithm does not fit.
            EnvironmentFailed: The environment cannot be made.
        """
        config = complete(self.config, self.origin, tables=["algorithm"])
        return problem_of(config, self._asked())

    def units(self) -> tuple[int, Matrix | None]:
        """Return M, and the target T that a code has to recover; None for every unit.

        The algorithms of ``PER_AGENT``, whose import takes seconds, are not asked unless agents are
        to share networks or to have micro-batches; the environment is made as for ``agents`` or
        ``problem``.

        Raises:
            ConfigError: The table [algorithm] is wrong, or the algorithm does not fit.
            EnvironmentFailed: The environment cannot be made.
        """
        if self._per_agent():
            return self.agents(), None
        problem = self.problem()
        return len(problem.units), problem.target

    def _per_agent(self) -> bool:
        settings = self.config.algorithm
        alone = settings.params.get("share", "none") == "none"
        single = settings.params.get("micro_batches", 1) == 1
        return settings.name in PER_AGENT and alone and single

    def with_environment(self) -> "Resolved":
        """Return the same with facts about the environment and its number of agents.

        Raises:
            EnvironmentFailed: The environment cannot be made.
        """
        spec = self._asked()
        own = replace(self.config.environment, agents=len(spec.agents))
        return replace(self, config=replace(self.config, environment=own), environment=spec)

    def _asked(self) -> EnvironmentSpec:
        return spec_of(self.config) if self.environment is None else self.environment

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
        """Validate the plug-in tables, and choose ``learners`` where it is 0.

        Unlike ``check`` this imports no torch for the algorithms of ``PER_AGENT``: of [algorithm]
        only names and types of parameters are judged, and only those of this package's algorithms.

        Raises:
            ConfigError: As for ``check``.
            EnvironmentFailed: The number of agents is the environment's own, and it cannot be made.
        """
        check_declared(self.config, self.origin)
        sized = self._with(complete(self.config, self.origin, tables=SIZING))
        if not sized.config.learners:
            sized = sized._with_learners()
        check_delays(sized.config)
        return sized

    def _with_learners(self) -> "Resolved":
        config = self.config
        counts = self._per_agent() and config.environment.agents
        asked = self if counts else replace(self, environment=self._asked())
        units, target = asked.units()
        counted = f"{units} {'agents' if target is None else 'units'}"
        tolerance = config.code.params.get("tolerance", 0)
        beyond = isinstance(tolerance, int) and tolerance >= MOST_LEARNERS
        learners = 0 if beyond else learners_of(config, units=units, target=target)
        if beyond or learners > MOST_LEARNERS:
            raise ConfigError(
                f"{config.code.name} with {counted} and code.tolerance = {tolerance} needs more "
                f"than the {MOST_LEARNERS} learners that a run may have; lower code.tolerance, or "
                "set learners"
            )
        return replace(
            asked,
            config=replace(config, learners=learners),
            origin={**self.origin, "learners": f"default: {config.code.name} with {counted}"},
        )

    def _with(self, config: RunConfig) -> "Resolved":
        return replace(self, config=config, origin=_origins(config) | dict(self.origin))


def load(
    config_path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    topology: str | None = None,
) -> Resolved:
    """Read all layers and validate the tree; ``Resolved.check`` validates the plug-in tables.

    Args:
        config_path: A TOML file.
        environ: Variables such as ``os.environ``; names that begin with ``FULLRANK__`` count.
        overrides: ``key=value`` texts of ``--set``; a value that is not valid TOML is text.
        options: Dotted keys to the values of typed command-line options; None: not given.
        topology: Name of a topology; None: the defaults.

    Raises:
        ConfigError: The file cannot be read, a key is unknown, a value is impossible, or a setting
            contradicts the topology.
    """
    given = {key: value for key, value in (options or {}).items() if value is not None}
    command_line = [override(text) for text in overrides]
    command_line += [(tuple(key.split(".")), Leaf(given[key], "option")) for key in given]
    layers = [
        file_layer(config_path) if config_path is not None else {},
        environment_layer(environ or {}),
        dict(command_line),
    ]
    if topology is not None:
        layers.insert(0, topology_layer(topology, layers))
    return resolve(layers)


def resolve(layers: Iterable[ConfigLayer]) -> Resolved:
    """Merge the layers and validate the tree."""
    leaves: ConfigLayer = {}
    for layer in layers:
        for key, leaf in layer.items():
            check_key(key, leaf.origin)
        leaves = merge(leaves, layer)
    try:
        config = _tree().validate_json(_nested(leaves), strict=True)
    except ValidationError as error:
        raise ConfigError(_explain(error, leaves)) from error
    _check_together(config)
    given = {".".join(key): leaf.origin for key, leaf in leaves.items()}
    return Resolved(config=config, origin=_origins(config) | given)


BRIEF = {"warmup": 2_000, "warmup_copies": 8}
"""A warm-up of rows or of copies that take long to make."""


@cache
def _tree() -> TypeAdapter[RunConfig]:
    """Return the validator of the tree, whose construction takes tens of milliseconds."""
    return TypeAdapter(RunConfig)


def _nested(leaves: ConfigLayer) -> str:
    # A plug-in table without a name keeps its default name. The default number of agents applies to
    # the default environment only, the default copies to environments that step them as arrays, and
    # the default numbers to these and to algorithms that learn from single transitions.
    root: JSON = {section: {"name": TABLES[section].name, "params": {}} for section in PLUGINS}
    if name_of(leaves, ("environment", "name")) != TABLES["environment"].name:
        root["environment"]["agents"] = 0
    if is_adapted(name_of(leaves, ("environment", "name"))):
        root["environment"]["copies"], root["collect"] = 4, {"steps": 25, **BRIEF}
    if learns_episodes(name_of(leaves, ("algorithm", "name"))):
        root |= {"iterations": 2_000, "collect": {**BRIEF}}
        root["environment"].setdefault("copies", 8)
    if leaves.get(("collectors", "count"), Leaf(0, "")).value:
        root.setdefault("collect", {})["mode"] = "keyed"
    for key, leaf in leaves.items():
        free = key[0] in PLUGINS and key[1] not in SECTIONS[key[0]]
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
    if leaf is None:
        return str(error)
    return f"{'.'.join(key)} = {shown(leaf.value)} in {leaf.origin}: {expected}"


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
    if config.audit.byzantine and config.controller.inexact == "commit":
        raise ConfigError(
            f"audit.byzantine = {config.audit.byzantine} commits proved bits alone: set "
            "controller.inexact=fail"
        )
    if reason := refusal_of(config.collect, config.collectors):
        raise ConfigError(reason)
    if config.collectors.containers and config.algorithm.name in (*PER_AGENT, *ON_POLICY):
        raise ConfigError(
            "collectors.containers learn action values from earlier episodes, which "
            f"{config.algorithm.name} does not: use algorithm.name = 'qmix', 'qplex', 'vdn', 'iql'"
        )
    if config.collectors.containers and config.algorithm.params.get("share", "all") != "all":
        raise ConfigError(
            "collectors.containers learn the last layer of one network of all agents: set "
            "algorithm.share = 'all'"
        )
    if config.containers.low >= config.containers.high:
        raise ConfigError(
            f"containers.low = {config.containers.low} must be below containers.high = "
            f"{config.containers.high}"
        )
    if config.collectors.processes and not is_adapted(config.environment.name):
        raise ConfigError(
            "collectors.processes is for PettingZoo's and gymnasium's environments: the copies of "
            f"{config.environment.name} are stepped as arrays"
        )
    if config.collectors.processes and config.compute.emulate_step_s:
        raise ConfigError("collectors.processes and compute.emulate_step_s exclude each other")
    if config.replay.capacity < config.collect.warmup:
        raise ConfigError(
            f"replay.capacity = {config.replay.capacity} cannot hold the warm-up of "
            f"collect.warmup = {config.collect.warmup} transitions"
        )
