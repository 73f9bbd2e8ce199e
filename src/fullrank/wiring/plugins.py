"""Construction of the configured environment, algorithm and delay model."""

import os
from threading import Event

from fullrank.algorithms import (
    Algorithm,
    AlgorithmConfig,
    EnvironmentSpec,
    Problem,
    algorithms,
)
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.config.plugins import SEEING
from fullrank.config.tree import RunConfig
from fullrank.environments import Environment, make_environment
from fullrank.environments.base import Step
from fullrank.replay.limits import MINIBATCH_BYTES, rows_per_minibatch
from fullrank.stragglers import DelayModel, delay_models

PARAMETERS = 2**31
"""Most parameters of all networks of a run, which take 8 GiB."""

MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
"""Memory of this machine."""


def environment_of(config: RunConfig, copies: int) -> Environment:
    """Make the configured environment, with ``copies`` copies stepped together.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
        EnvironmentFailed: The environment cannot be made.
    """
    settings = config.environment
    made = make_environment(settings.name, agents=settings.agents, copies=copies, **settings.params)
    step_s = config.compute.emulate_step_s
    return _emulated(made, step_s) if step_s else made


def _emulated(environment: Environment, step_s: float) -> Environment:
    """Let every step take at least this time, seconds, without the processor."""
    step, never = environment.step, Event()

    def slow(action: FloatArray) -> Step:
        never.wait(step_s)
        return step(action)

    environment.step = slow  # type: ignore[method-assign]
    return environment


def algorithm_of(config: RunConfig, environment: EnvironmentSpec) -> Algorithm:
    """Build the configured algorithm for an environment, with initial parameters.

    Raises:
        ConfigError: The configuration names something unknown, is inconsistent, or needs larger
            networks or minibatches than any run has.
    """
    from fullrank.algorithms.devices import device_of  # imports torch

    configured = algorithm_config_of(config)
    accelerated = problem_that_fits(configured, environment).accelerated
    device = str(device_of(config.compute.device, accelerated=accelerated))
    algorithm = configured.make(environment, seed=config.seed, device=device)
    problem = algorithm.problem
    row_bytes, batch_size = 4 * problem.row_size, problem.data.batch_size
    if batch_size > (most := rows_per_minibatch(row_bytes)):
        raise ConfigError(
            f"algorithm.batch_size = {batch_size} transitions of {row_bytes} bytes exceed "
            f"the largest minibatch that replay sends, {MINIBATCH_BYTES} bytes; lower it to {most}"
        )
    return algorithm


def is_accelerated(config: RunConfig, environment: EnvironmentSpec) -> bool:
    """Return ``Problem.accelerated`` of a run.

    Raises:
        ConfigError: As ``algorithm_of``.
    """
    return problem_that_fits(algorithm_config_of(config), environment).accelerated


FEW = 10_000
"""Weights from which on a network is named among those of a run."""


def networks_of(problem: Problem) -> tuple[str, int]:
    """Say what networks there are, and their bytes with targets and moments.

    >>> from fullrank.algorithms.problem import DataMode, Section
    >>> sections = [Section(id=0, role="critic", agents=(0,), size=21_700_000)]
    >>> sections += [Section(id=1, role="critic", agents=(1,), size=21_700_000)]
    >>> networks_of(Problem(
    ...     units=(), unit_sizes=(), sections=tuple(sections), reads=(), row_size=1, data=DataMode()
    ... ))
    ('2 critic networks of 21.7 M weights', 520800000)
    """
    sizes: dict[str, list[int]] = {}
    for section in problem.sections:
        sizes.setdefault(section.role, []).append(section.size)
    online = {role: own for role, own in sizes.items() if not role.startswith("target_")}
    largest = {role: own for role, own in online.items() if max(own) >= FEW}
    said = [
        f"{len(own)} {role} network{'s' * (len(own) > 1)} of {max(own) / 1e6:.3g} M weights"
        for role, own in largest.items()
    ]
    bytes_ = 4 * (sum(map(sum, sizes.values())) + 2 * sum(map(sum, online.values())))
    return " and ".join(said), bytes_


def problem_that_fits(configured: AlgorithmConfig, environment: EnvironmentSpec) -> Problem:
    """Return the problem of an algorithm, before any network is made.

    Raises:
        ConfigError: No process can hold its networks.
    """
    remedy = "lower algorithm.hidden"
    if any(agent.image is not None for agent in environment.agents):
        remedy += f", make the images smaller, or use {', '.join(SEEING)}, which see them by "
        remedy += "convolutions"
    try:
        problem = configured.problem(environment)
        parameters = sum(section.size for section in problem.sections)
    except RuntimeError:  # torch counts in 64 bits
        parameters = 2**63
    if parameters > PARAMETERS:
        raise ConfigError(
            f"the networks of these agents have {parameters} parameters, and {PARAMETERS} are the "
            f"limit; {remedy}"
        )
    networks, bytes_ = networks_of(problem)
    if bytes_ > MEMORY_BYTES:
        raise ConfigError(
            f"{networks}: {bytes_ / 1e9:.3g} GB with targets and moments, and this machine has "
            f"{MEMORY_BYTES / 1e9:.3g} GB; {remedy}"
        )
    return problem


def algorithm_config_of(config: RunConfig) -> AlgorithmConfig:
    """Return the configured algorithm's settings.

    Raises:
        ConfigError: The algorithm or a setting does not exist, or cannot be audited as asked.
    """
    built = algorithms.build(config.algorithm.name, **config.algorithm.params)
    if (config.audit.byzantine or config.audit.spot) and not built.data_mode().exact:
        raise ConfigError(
            "audit.byzantine and audit.spot compare what learners compute alike, and with "
            "algorithm.data = independent none do: set both to 0"
        )
    return built


def max_variance_of(config: RunConfig) -> float:
    """Return the largest variance of decoded units at which no further row is awaited.

    It is infinite if all holders of a unit compute the same bits.
    """
    return algorithm_config_of(config).data_mode().max_variance


def delays_of(config: RunConfig) -> DelayModel:
    """Build the configured delay model.

    Raises:
        ConfigError: The model does not exist or its parameters are invalid.
    """
    return delay_models.build(config.stragglers.name, **config.stragglers.params)
