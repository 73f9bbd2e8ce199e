"""Plug-in tables, validated against the registered classes that they name."""

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from fullrank.algorithms.base import EnvironmentSpec, algorithms, environment_spec
from fullrank.algorithms.problem import Problem
from fullrank.codes.base import CodeFamily
from fullrank.common.errors import ConfigError
from fullrank.common.registry import Registry
from fullrank.common.types import JSON, Matrix
from fullrank.config.auto_code import code_choices
from fullrank.config.tree import EnvironmentSettings, PluginSettings, RunConfig
from fullrank.environments.base import AgentSpec, Environment, environments, make_environment
from fullrank.environments.capabilities import offers_masks, own_state_size
from fullrank.stragglers import delay_models
from fullrank.stragglers.base import lateness_of

PACKAGE = "fullrank.algorithms"
SIMPLE: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}


@cache
def declared(module: str, cls: str = "") -> dict[str, Any]:
    """Types by field of a dataclass and its bases; Any for compound types.

    Args:
        module: Name of a module of the package.
        cls: Name of the class; default: the algorithm that is called like the module.
    """
    tree = ast.parse((files(PACKAGE) / f"{module}.py").read_text(encoding="utf-8"))
    origins, found = dict[str, str](), dict[str, Any]()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{PACKAGE}."):
            origins |= {alias.name: str(node.module).split(".")[-1] for alias in node.names}
        if isinstance(node, ast.ClassDef) and (cls or f"register('{module}')") in (
            node.name,
            *map(ast.unparse, node.decorator_list),
        ):
            for base in map(ast.unparse, node.bases):
                found |= declared(origins.get(base, module), base)
            found |= {
                ast.unparse(line.target): _type(line.annotation)
                for line in node.body
                if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line)
            }
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and "init=False" in ast.unparse(line):
                    del found[ast.unparse(line.target)]
    return found


def _type(annotation: ast.expr) -> Any:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        return Literal[ast.literal_eval(annotation.slice)]
    return SIMPLE.get(ast.unparse(annotation), Any)


_REGISTRIES: Mapping[str, Registry[Any]] = {
    "code": code_choices,
    "stragglers": delay_models,
    "environment": environments,
    "algorithm": algorithms,
}
PER_AGENT = ("maddpg", "mfac", "darl1n", "masac", "isac")
"""Algorithms of this package with one unit for each agent, which need no import to be counted."""
ON_POLICY = ("ippo", "mappo", "coma", "pqn")
"""Algorithms of this package that learn from each collection alone."""
EPISODIC = ("qmix", "vdn", "iql", "qplex", *ON_POLICY)
"""Algorithms of this package that learn from whole episodes, one of each copy per iteration."""
SEEING = ("ippo", "mappo", "coma", "pqn", "vdn", "iql")
"""Algorithms of this package that see images of bytes by convolutions."""
WHOLE_EPISODES = "whole_episodes"
"""Class attribute by which a plug-in says that it learns from whole episodes."""
SIZING = ("code", "stragglers", "environment")
"""Tables that determine the sizes of a run; their plug-ins import no torch."""


def learns_episodes(name: str) -> bool:
    """Return whether an algorithm learns from whole episodes; only a plug-in is imported for it."""
    if name in (*PER_AGENT, *EPISODIC):
        return name in EPISODIC
    try:
        return bool(getattr(algorithms.get(name), WHOLE_EPISODES, False))
    except ConfigError:  # which says so where the algorithm is made
        return False


def complete(config: RunConfig, origin: Mapping[str, str], *, tables: Iterable[str]) -> RunConfig:
    """The configuration with every parameter of the plug-ins in ``tables``, validated.

    Raises:
        ConfigError: Unknown name, unknown or missing parameter, wrong type or refused value.
    """
    completed = {}
    for table in tables:
        settings = getattr(config, table)
        if ":" not in settings.name:  # only the factory knows its arguments
            completed[table] = replace(settings, params=_complete(table, settings, origin))
    return replace(config, **completed)


def check_declared(config: RunConfig, origin: Mapping[str, str]) -> None:
    """Refuse parameters that an algorithm of this package does not declare, without importing it.

    ``complete`` judges the others, and the values that the algorithm itself refuses.

    Raises:
        ConfigError: Unknown parameter, or a value of the wrong type.
    """
    name, params = config.algorithm.name, config.algorithm.params
    if name in (*PER_AGENT, *EPISODIC):
        known = declared(name)
        algorithms.refuse_unknown(name, params, known=list(known))
        _typed("algorithm", params, known, origin)


def spec_of_agents(
    config: RunConfig, agents: Sequence[AgentSpec], *, state_size: int, masked: bool
) -> EnvironmentSpec:
    """Return facts about the configured environment, of which these are told.

    Args:
        config: The configuration.
        agents: Specifications of the environment's agents, in order.
        state_size: Entries of its global state; 0 if it has none.
        masked: True if some actions may be unavailable to a living agent.
    """
    settings = config.environment
    return environment_spec(
        agents,
        environment=settings.name,
        count=settings.agents,
        params=settings.params,
        state_size=state_size,
        masked=masked,
    )


def spec_of_environment(config: RunConfig, environment: Environment) -> EnvironmentSpec:
    """Return facts about the configured environment, which was made."""
    return spec_of_agents(
        config,
        environment.agents,
        state_size=own_state_size(environment),
        masked=offers_masks(environment),
    )


def spec_of(config: RunConfig) -> EnvironmentSpec:
    """Return facts about the configured environment, which is made to ask it.

    Raises:
        ConfigError: There is no such environment, or its parameters are impossible.
        EnvironmentFailed: The environment cannot be made.
    """
    settings = config.environment
    environment = make_environment(
        settings.name, agents=settings.agents, copies=1, **settings.params
    )
    environment.close()
    return spec_of_environment(config, environment)


def problem_of(config: RunConfig, spec: EnvironmentSpec | None = None) -> Problem:
    """Return the configured algorithm's units, sections and sizes without allocating parameters.

    The algorithm is imported.

    Args:
        config: The configuration.
        spec: Facts about the environment; by default it is made.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
        EnvironmentFailed: The environment cannot be made.
    """
    algorithm = algorithms.build(config.algorithm.name, **config.algorithm.params)
    return algorithm.problem(spec_of(config) if spec is None else spec)


def learners_of(config: RunConfig, *, units: int, target: Matrix | None = None) -> int:
    """N: as configured, or as many as the configured code needs for M = ``units``.

    Args:
        config: The configuration.
        units: M, number of units.
        target: T that the code has to recover; None for every unit.

    Raises:
        ConfigError: There is no such code, or it does not exist with these parameters.
    """
    family = code_choices.build(config.code.name, **config.code.params)
    return config.learners or rows_of(family, units=units, target=target)


def rows_of(family: CodeFamily, *, units: int, target: Matrix | None) -> int:
    """The number of rows that a family chooses for M = ``units``, or for the target T."""
    return family.rows_for(units) if target is None else family.rows_to_recover(target)


def check_delays(config: RunConfig) -> None:
    """Refuse a delay model that is impossible for the configured learners.

    Raises:
        ConfigError: The model is impossible, for example with more stragglers than learners.
    """
    model = delay_models.build(config.stragglers.name, **config.stragglers.params)
    lateness_of(model, seed=config.seed, iteration=0, learner=0, learners=config.learners)


def complete_stragglers(
    settings: PluginSettings, origin: Mapping[str, str] = MappingProxyType({})
) -> PluginSettings:
    """A table [stragglers] with every parameter of its delay model, validated.

    Raises:
        ConfigError: As for ``complete``.
    """
    return replace(settings, params=_complete("stragglers", settings, origin))


def complete_code(settings: PluginSettings, *, source: str) -> PluginSettings:
    """A table [code] with every parameter of its family, validated.

    Args:
        settings: The table.
        source: Where its parameters are given, for messages.

    Raises:
        ConfigError: As for ``complete``.
    """
    origin = {f"code.{key}": source for key in settings.params}
    return replace(settings, params=_complete("code", settings, origin))


def _complete(
    table: str, settings: PluginSettings | EnvironmentSettings, origin: Mapping[str, str]
) -> JSON:
    registry, name, params = _REGISTRIES[table], settings.name, settings.params
    registry.check_keys(name, params, table=table)
    hints = get_type_hints(registry.get(name), include_extras=True)
    instance = registry.build(name, **_typed(table, params, hints, origin))
    values = {field.name: getattr(instance, field.name) for field in fields(instance) if field.init}
    return {key: to_jsonable_python(value) for key, value in values.items() if value is not None}


def _typed(
    table: str, params: Mapping[str, Any], hints: Mapping[str, Any], origin: Mapping[str, str]
) -> JSON:
    typed = {}
    for key, value in params.items():
        try:
            text = json.dumps(value, default=str)
            typed[key] = TypeAdapter(hints[key]).validate_json(text, strict=True)
        except ValidationError as error:
            choices = " or ".join(dict.fromkeys(each["msg"] for each in error.errors()))
            expected = choices.replace("or Input should be", "or").replace("Input should", "must")
            where = origin.get(f"{table}.{key}", "its table")
            raise ConfigError(f"{table}.{key} = {value!r} in {where}: {expected}") from error
    return typed
