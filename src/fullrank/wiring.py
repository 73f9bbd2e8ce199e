"""Construction of the objects that every driver needs, from the configuration tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any

import numpy as np

from fullrank.algorithms import (
    Algorithm,
    AlgorithmConfig,
    DataMode,
    EnvironmentSpec,
    Problem,
    algorithms,
    environment_spec,
)
from fullrank.algorithms.base import layout_of
from fullrank.audit.ledger import WINDOW
from fullrank.codes import Code
from fullrank.codes.analysis import witnesses
from fullrank.codes.learner_codes import code_for_learners, tolerance_asked_of
from fullrank.common.errors import CodeError, ConfigError
from fullrank.common.types import FloatArray, Matrix
from fullrank.config.auto_code import code_choices
from fullrank.config.plugins import learners_of
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec, Environment, make_environment
from fullrank.environments.base import Step
from fullrank.environments.capabilities import offers_masks, own_state_size
from fullrank.environments.processes import EnvironmentProcess
from fullrank.replay.authorship import ENTRIES, MOST
from fullrank.replay.intake import Arrival
from fullrank.replay.limits import MINIBATCH_BYTES, rows_per_minibatch
from fullrank.replay.pace import Pace
from fullrank.replay.samplers import Priority
from fullrank.stragglers import DelayModel, delay_models
from fullrank.training.block_player import BlockPlayer
from fullrank.training.blocks import BlockPlan, WriterPlan
from fullrank.training.collector import Collector
from fullrank.training.free import FreeRollout
from fullrank.training.keyed import KeyedRollout
from fullrank.training.trainer import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The controller's side of a run: a collector and a trainer that share their parameters."""

    collector: Collector
    trainer: Trainer

    @property
    def algorithm(self) -> Algorithm:
        """Return the algorithm, which holds the authoritative parameters."""
        return self.trainer.algorithm

    @property
    def problem(self) -> Problem:
        """Return units, sections and sizes of the run."""
        return self.trainer.algorithm.problem

    @property
    def state_size(self) -> int:
        """Return the entries of the environment's global state, 0 if it has none."""
        return self.collector.state_size

    @property
    def masked(self) -> bool:
        """Return whether some actions may be unavailable to a living agent."""
        return self.collector.masked

    def state(self, *, resume_at: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays from which ``load`` resumes at iteration ``resume_at``.

        Call this once ``resume_at - 1`` is applied; ``resume_at`` may already have been collected.
        """
        return {**self.trainer.state(), **self.collector.state(resume_at=resume_at)}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]], *, resume_at: int) -> None:
        """Resume at iteration ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state belongs to another environment, algorithm or number of
                copies.
            EnvironmentFailed: The environments are not reproducible.
        """
        self.trainer.load(state)
        self.collector.load(state, resume_at=resume_at)


def training_of(config: RunConfig) -> Training:
    """Build the controller's side of a run.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
        EnvironmentFailed: The environment cannot be made.
    """
    copies = config.environment.copies if config.collect.mode == "inline" else 1
    environment = environment_of(config, copies=copies)
    algorithm = algorithm_of(
        config,
        environment.agents,
        state_size=own_state_size(environment),
        masked=offers_masks(environment),
    )
    collector = Collector(
        partial(_copies_of, config),
        environment,
        algorithm.actor,
        algorithm.problem,
        seed=config.seed,
        steps=config.collect.steps,
        warmup=0 if config.collect.mode == "free" else config.collect.warmup,
        warmup_copies=config.collect.warmup_copies,
        keyed=_keyed_of(config, environment, algorithm),
        free=_free_of(config, environment, algorithm),
    )
    return Training(
        collector=collector,
        trainer=Trainer(
            algorithm,
            seed=config.seed,
            priority=_priority_of(config, environment.agents, algorithm.problem),
        ),
    )


def _copies_of(config: RunConfig, copies: int) -> Environment:
    return environment_of(config, copies=copies)


def _keyed_of(
    config: RunConfig, environment: Environment, algorithm: Algorithm
) -> KeyedRollout | None:
    """Build the collection by blocks, if it is configured.

    Raises:
        ConfigError: Learners collect.
    """
    if config.collect.mode != "keyed":
        return None
    _require_replay(config, algorithm)
    return KeyedRollout(
        environment,
        algorithm,
        lambda: block_player_of(
            config,
            environment.agents,
            state_size=own_state_size(environment),
            masked=offers_masks(environment),
        ),
        plan=plan_of(config),
        lag=config.collect.lag,
    )


def _free_of(
    config: RunConfig, environment: Environment, algorithm: Algorithm
) -> FreeRollout | None:
    """Build the controller's side of free collection, if it is configured.

    Raises:
        ConfigError: Learners collect.
    """
    if config.collect.mode != "free":
        return None
    _require_replay(config, algorithm)
    return FreeRollout(environment, algorithm)


def _require_replay(config: RunConfig, algorithm: Algorithm) -> None:
    if not algorithm.problem.data.batch_size:
        raise ConfigError(
            f"{config.algorithm.name} collects its transitions in learners; use collect.mode = "
            "'inline'"
        )


def refuse_free(config: RunConfig) -> None:
    """Refuse free collection where there is no replay service that collectors could write to.

    Raises:
        ConfigError: It is configured.
    """
    if config.collect.mode == "free":
        raise ConfigError(
            "collect.mode = 'free' needs services: collectors write to replay; train without "
            "--local, or use 'keyed'"
        )


def plan_of(config: RunConfig) -> BlockPlan:
    """Return the blocks of an iteration in keyed mode, of a writer in free mode."""
    if config.collect.mode == "free":
        return WriterPlan(MOST, config.collect.block)
    return BlockPlan(config.environment.copies, config.collect.block)


def arrival_rules(config: RunConfig, problem: Problem, *, first: int) -> Arrival:
    """Return the rules of a table that collectors fill.

    Args:
        config: The configuration.
        problem: Layout of its rows.
        first: Iteration that is to begin.
    """
    collect = config.collect
    pace = Pace(
        updates_per_episode=1 / config.environment.copies,
        slack=0,
        window=collect.window,
        warmup=collect.warmup_episodes,
        max_lag=collect.max_lag,
        first=first,
    )
    return Arrival(episodes=problem.episodes, pace=pace)


def block_player_of(
    config: RunConfig,
    agents: Sequence[AgentSpec],
    *,
    state_size: int,
    masked: bool,
    processes: bool = False,
) -> BlockPlayer:
    """Build a player of a run's blocks, with parameters of its own.

    Args:
        config: The configuration.
        agents: Specifications of the environment's agents, in order.
        state_size: Entries of its global state; 0 if it has none.
        masked: True if some actions may be unavailable to a living agent.
        processes: True if each copy is played in a process of its own.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
    """
    named = config.environment
    start = partial(EnvironmentProcess, named.name, agents=named.agents, params=named.params)
    return BlockPlayer(
        partial(_copies_of, config),
        algorithm_of(config, agents, state_size=state_size, masked=masked),
        plan_of(config),
        seed=config.seed,
        start_copy=start if processes else None,
    )


def _priority_of(
    config: RunConfig, agents: Sequence[AgentSpec], problem: Problem
) -> Priority | None:
    if config.sampling.method != "prioritised":
        return None
    if problem.episodes is not None:
        raise ConfigError(
            f"{config.algorithm.name} draws whole episodes, uniformly; use sampling.method = "
            "'uniform'"
        )
    layout, gain = layout_of(agents), config.sampling.priority_gain
    return Priority(first=layout.reward.start, count=layout.agents, gain=gain)


def environment_of(config: RunConfig, *, copies: int) -> Environment:
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


def algorithm_of(
    config: RunConfig, agents: Sequence[AgentSpec], *, state_size: int = 0, masked: bool = False
) -> Algorithm:
    """Build the configured algorithm for the environment's agents, with initial parameters.

    Args:
        config: The configuration.
        agents: Specifications of the environment's agents, in order.
        state_size: Entries of its global state; 0 if it has none.
        masked: True if some actions may be unavailable to a living agent.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
    """
    algorithm = algorithm_config_of(config).make(
        _environment_spec(config, agents, state_size, masked),
        seed=config.seed,
        device=config.compute.device,
    )
    if config.collect.mode != "free":
        return algorithm
    problem = algorithm.problem  # rows end with the authorship of their episode
    return replace(algorithm, problem=replace(problem, row_size=problem.row_size + ENTRIES))


def initial_algorithm(config: RunConfig, training: Training) -> Algorithm:
    """Build another copy of a run's algorithm, with the parameters that it began with."""
    return algorithm_of(
        config,
        training.collector.agents,
        state_size=training.state_size,
        masked=training.masked,
    )


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


def _environment_spec(
    config: RunConfig, agents: Sequence[AgentSpec], state_size: int, masked: bool
) -> EnvironmentSpec:
    settings = config.environment
    return environment_spec(
        agents,
        environment=settings.name,
        count=settings.agents,
        params=settings.params,
        state_size=state_size,
        masked=masked,
    )


def max_variance_of(config: RunConfig) -> float:
    """Return the largest variance of decoded units at which no further row is awaited.

    It is infinite if all holders of a unit compute the same bits.
    """
    return algorithm_config_of(config).data_mode().max_variance


def capacity_of(config: RunConfig, training: Training) -> int:
    """Return the number of transitions that replay holds within both of its limits.

    Raises:
        ConfigError: The capacity is below the warm-up, or a minibatch is too large to send.
    """
    settings, row_bytes = config.replay, 4 * training.problem.row_size
    warmup, batch_size = training.collector.warmup, training.problem.data.batch_size
    capacity = min(settings.capacity, settings.capacity_bytes // row_bytes)
    if not capacity:
        raise ConfigError(
            f"replay.capacity_bytes = {settings.capacity_bytes} is less than one transition of "
            f"{row_bytes} bytes; raise it"
        )
    if capacity < warmup:
        raise ConfigError(
            f"replay.capacity_bytes = {settings.capacity_bytes} holds {capacity} transitions of "
            f"{row_bytes} bytes, fewer than collect.warmup = {warmup}; raise it to "
            f"{warmup * row_bytes} or lower collect.warmup"
        )
    if batch_size > (most := rows_per_minibatch(row_bytes)):
        raise ConfigError(
            f"algorithm.batch_size = {batch_size} transitions of {row_bytes} bytes exceed "
            f"the largest minibatch that replay sends, {MINIBATCH_BYTES} bytes; lower it to {most}"
        )
    return capacity


def audit_period(config: RunConfig, data: DataMode) -> int:
    """Iterations between two audits; 0 for none, as where learners draw samples of their own."""
    return config.audit.every if data.exact else 0


def spare_rows(config: RunConfig, training: Training) -> int:
    """Rows that replay keeps beyond its capacity, so that withdrawn iterations sample alike.

    They cover the iteration that is gathered while the one before is not durable yet, and those
    from one audit to the next and for which a report may be late.
    """
    every, steps = audit_period(config, training.problem.data), config.collect.steps
    if config.collect.mode != "inline":
        steps = max(steps, 1 + training.collector.horizon)
    withdrawn = 1 + (every + WINDOW if every else 0)
    ahead = config.collect.window if config.collect.mode == "free" else 0
    return (withdrawn * config.environment.copies + ahead) * steps


def code_of(config: RunConfig, *, units: int, target: Matrix | None = None) -> Code:
    """Build the configured code of the configured learners.

    Args:
        config: The configuration.
        units: M, number of units.
        target: T that the code has to recover; by default every unit.

    Raises:
        CodeError: No such code exists for N learners and M = ``units``; the message names the
            necessary change.
    """
    settings, learners = config.code, learners_of(config, units=units, target=target)
    family = code_choices.build(settings.name, **settings.params)
    asked = tolerance_asked_of(family)
    if learners <= asked:
        raise CodeError(
            f"code.tolerance = {asked} lost learners needs more than {asked} learners: use "
            f"--learners {asked + 1} or a lower code.tolerance"
        )
    code = code_for_learners(
        family, learners=learners, units=units, seed=config.seed, target=target
    )
    _require_witnesses(config, code)
    return code


def _require_witnesses(config: RunConfig, code: Code) -> None:
    """Refuse a code that cannot bear out what ``audit.byzantine`` asks for.

    Raises:
        CodeError: Too few learners state alike what a commit rests on.
    """
    faults, found = config.audit.byzantine, witnesses(code)
    if found > faults:
        return
    sums = (
        "" if code.recovers_units else ", and of sums only fractional and replication repeat rows"
    )
    raise CodeError(
        f"audit.byzantine = {faults} needs {faults + 1} learners that compute alike, and "
        f"{code.name} with {code.learners} learners has {found}: raise code.tolerance to {faults}, "
        f"or further to let learners be late{sums}"
    )


def delays_of(config: RunConfig) -> DelayModel:
    """Build the configured delay model.

    Raises:
        ConfigError: The model does not exist or its parameters are invalid.
    """
    return delay_models.build(config.stragglers.name, **config.stragglers.params)
