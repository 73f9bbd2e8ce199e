"""From the configuration tree to the objects that every driver needs."""

import math

from fullrank.algorithms import (
    AlgorithmConfig,
    Dimensions,
    IndependentAlgorithmConfig,
    algorithms,
    recipe_in,
)
from fullrank.codes import Code, codes, make_code
from fullrank.codes.targets import each_unit
from fullrank.common.errors import CodeError, ConfigError, TooFewRows
from fullrank.config import RunConfig, learners_of
from fullrank.environments import Environment, make_environment
from fullrank.replay.limits import MINIBATCH_BYTES, rows_per_minibatch
from fullrank.stragglers import DelayModel, delay_models
from fullrank.training.trainer import Training


def training_of(config: RunConfig) -> Training:
    """The controller's side of a run.

    Raises:
        ConfigError: The configuration names something that does not exist or cannot be.
        EnvironmentFailed: The environment cannot be made.
    """
    prioritised = config.sampling.method == "prioritised"
    return Training(
        seed=config.seed,
        environment=config.environment.name,
        environment_params=config.environment.params,
        agents=config.environment.agents,
        algorithm=config.algorithm.name,
        algorithm_params=config.algorithm.params,
        device=config.compute.device,
        copies=config.environment.copies,
        steps=config.collect.steps,
        warmup=config.collect.warmup,
        warmup_copies=config.collect.warmup_copies,
        priority_gain=config.sampling.priority_gain if prioritised else None,
    )


def environment_of(config: RunConfig, *, copies: int) -> Environment:
    """The configured environment, so many copies stepped together.

    Raises:
        ConfigError: The configuration names something that does not exist or cannot be.
        EnvironmentFailed: The environment cannot be made.
    """
    world = config.environment
    return make_environment(world.name, agents=world.agents, copies=copies, **world.params)


def recipe_of(config: RunConfig) -> AlgorithmConfig:
    """What makes the configured algorithm.

    Raises:
        ConfigError: The configuration names something that does not exist or cannot be.
    """
    world = config.environment
    return recipe_in(
        algorithms.build(config.algorithm.name, **config.algorithm.params),
        environment=world.name,
        agents=world.agents,
        params=world.params,
    )


def dimensions_of(config: RunConfig) -> tuple[Dimensions, int]:
    """Sizes of the configured algorithm, made without its parameters, and the batch size B.

    Raises:
        ConfigError: As of ``recipe_of``.
    """
    environment = environment_of(config, copies=1)
    environment.close()
    algorithm = recipe_of(config)
    return algorithm.dimensions(environment.agents), algorithm.batch_size


def max_variance_of(config: RunConfig) -> float:
    """What is waited for if learners draw samples of their own; inf where they share them.

    Raises:
        ConfigError: As of ``recipe_of``.
    """
    recipe = recipe_of(config)
    return recipe.max_variance if isinstance(recipe, IndependentAlgorithmConfig) else math.inf


def capacity_of(config: RunConfig, training: Training) -> int:
    """Transitions that replay holds: as many as both its limits allow.

    Raises:
        ConfigError: They are fewer than the warm-up, or a minibatch of them is too large to send.
    """
    settings, row_bytes = config.replay, 4 * training.layout.row_size
    capacity = min(settings.capacity, settings.capacity_bytes // row_bytes)
    if not capacity:
        raise ConfigError(
            f"replay.capacity_bytes = {settings.capacity_bytes} is less than one transition of "
            f"{row_bytes} bytes; raise it"
        )
    if capacity < training.warmup:
        raise ConfigError(
            f"replay.capacity_bytes = {settings.capacity_bytes} holds {capacity} transitions of "
            f"{row_bytes} bytes, fewer than collect.warmup = {training.warmup}; raise it to "
            f"{training.warmup * row_bytes} or lower collect.warmup"
        )
    if training.batch_size > (most := rows_per_minibatch(row_bytes)):
        raise ConfigError(
            f"algorithm.batch_size = {training.batch_size} transitions of {row_bytes} bytes exceed "
            f"the largest minibatch that replay sends, {MINIBATCH_BYTES} bytes; lower it to {most}"
        )
    return capacity


def code_of(config: RunConfig, *, units: int) -> Code:
    """The configured code for the configured learners, one row each, which recovers every unit.

    Raises:
        CodeError: No such code exists for N learners and M = ``units``; the message says what to
            change.
    """
    settings, rows = config.code, learners_of(config, units=units)
    try:
        code = make_code(settings.name, rows=rows, units=units, seed=config.seed, **settings.params)
    except CodeError as error:
        family = codes.build(settings.name, **settings.params)
        needed = family.rows_for(units)
        if needed == rows:
            raise
        if not isinstance(error, TooFewRows):
            raise CodeError(f"{error}; each learner has a row: use --learners {needed}") from None
        inequality = error.inequality("learners", "agents")
        ways = [f"use --learners {needed}", "fewer --agents"]
        for key in family.tolerating(0) or {}:
            if getattr(family, key) > 0:
                ways.append(f"a lower code.{key}")
        raise CodeError(f"{inequality}; {_either(ways)}") from None
    return code.recovering(each_unit(units))


def _either(ways: list[str]) -> str:
    """Alternatives as a clause: ``a or b``, ``a, b, or c``."""
    return " or ".join(ways) if len(ways) < 3 else f"{', '.join(ways[:-1])}, or {ways[-1]}"


def delays_of(config: RunConfig) -> DelayModel:
    """The configured delay model; ``ConfigError`` if it cannot be."""
    return delay_models.build(config.stragglers.name, **config.stragglers.params)
