"""Construction of the controller's side of a run: its collector and its trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fullrank.algorithms import (
    Algorithm,
    DataMode,
    EnvironmentSpec,
    Problem,
)
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.devices import computed_elsewhere, device_of
from fullrank.algorithms.values import TD_ERROR
from fullrank.audit.ledger import WINDOW
from fullrank.common.errors import ConfigError
from fullrank.config.plugins import spec_of_environment
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec, Environment
from fullrank.environments.processes import EnvironmentProcess
from fullrank.replay.limits import POSITIONS
from fullrank.replay.pace import Pace
from fullrank.replay.samplers import Priority
from fullrank.training.block_collection import NEEDS_SERVICES, FreeCollection, KeyedCollection
from fullrank.training.block_player import BlockPlayer
from fullrank.training.blocks import BlockPlan, FreePlan
from fullrank.training.collection import Collection, Collector, EvaluationCollection, StepCollection
from fullrank.training.device_rollouts import DeviceRollout, plays_there
from fullrank.training.rollouts import Rollout
from fullrank.training.trainer import Trainer
from fullrank.wiring.plugins import algorithm_of, environment_of, is_accelerated

SPARE_BYTES = 64 * 2**20
"""Spare rows of episodes of different lengths that a table may have, however small it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The controller's side of a run: a collector and a trainer that share their parameters."""

    environment: EnvironmentSpec
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

    def state(self, *, resume_at: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays from which ``load`` resumes at iteration ``resume_at``.

        Call this once ``resume_at - 1`` is applied, the last one over a collection; ``resume_at``
        may already have been collected.
        """
        number = resume_at // self.trainer.updates
        return {**self.trainer.state(), **self.collector.collection.state(resume_at=number)}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]], *, resume_at: int) -> None:
        """Resume at iteration ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state belongs to another environment, algorithm or number of
                copies.
            EnvironmentFailed: The environments are not reproducible.
        """
        self.trainer.load(state)
        self.collector.collection.load(state, resume_at=resume_at // self.trainer.updates)


def training_of(config: RunConfig) -> Training:
    """Build the controller's side of a run.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
        EnvironmentFailed: The environment cannot be made.
    """
    copies = config.environment.copies if config.collect.mode == "inline" else 1
    environment = environment_of(config, copies=copies)
    spec = spec_of_environment(config, environment)
    algorithm = _controllers_algorithm(config, spec)
    updates = updates_of(config, algorithm.problem)
    collection = _collection_of(config, environment, algorithm, updates)
    collector = Collector(
        partial(environment_of, config),
        environment,
        algorithm.actor,
        algorithm.problem,
        collection=collection,
        seed=config.seed,
        warmup=0 if isinstance(collection, FreeCollection) else config.collect.warmup,
        warmup_copies=config.collect.warmup_copies,
        prepare=algorithm.prepare,
    )
    return Training(
        environment=spec,
        collector=collector,
        trainer=Trainer(
            algorithm,
            seed=config.seed,
            priority=_priority_of(config, environment.agents, algorithm.problem),
            updates=updates,
        ),
    )


def updates_of(config: RunConfig, problem: Problem) -> int:
    """Return K, the updates over one collection.

    Raises:
        ConfigError: Items of a collection cannot each be drawn once, or the run ends within one.
    """
    name, size, copies = config.algorithm.name, problem.data.batch_size, config.environment.copies
    if not problem.data.epochs:
        return 1
    counted = {"inline": True, "keyed": problem.episodes is not None, "free": False}
    if not counted[config.collect.mode]:
        raise ConfigError(
            f"{name} draws every item of a collection once, and with collect.mode = "
            f"{config.collect.mode!r} it has no fixed number of them; use 'inline'"
        )
    if config.sampling.method == "prioritised":
        raise ConfigError(f"{name} draws every item once; leave sampling.method = 'uniform'")
    items, of = copies, f"environment.copies = {copies}"
    if not problem.episodes:
        items, of = copies * config.collect.steps, f"{of} x collect.steps = {config.collect.steps}"
    if items % size:
        raise ConfigError(
            f"algorithm.batch_size = {size} does not divide the {items} items of a collection "
            f"({of}); set a divisor"
        )
    updates = problem.data.epochs * items // size
    if config.iterations % updates:
        raise ConfigError(
            f"iterations = {config.iterations} ends within the {updates} updates over a "
            f"collection; use {-(-config.iterations // updates) * updates}"
        )
    return updates


def _collection_of(
    config: RunConfig, environment: Environment, algorithm: Algorithm, updates: int
) -> Collection:
    """Choose how a run collects.

    Whole episodes that are played inline are keyed episodes of one block, which the controller
    plays.

    Raises:
        ConfigError: Learners collect.
    """
    mode, problem = config.collect.mode, algorithm.problem
    if mode != "inline" and not problem.data.batch_size:
        raise ConfigError(
            f"{config.algorithm.name} collects its transitions in learners; use collect.mode = "
            "'inline'"
        )
    if mode == "free":
        return FreeCollection(environment, algorithm, ahead=config.collect.window)
    if mode == "keyed" or problem.episodes is not None:
        return KeyedCollection(
            environment,
            algorithm,
            lambda: _own_player(config, environment),
            plan=plan_of(config),
            lag=config.collect.lag,
            updates=updates,
        )
    layout = layout_of(environment.agents, masked=problem.masked)
    if problem.data.batch_size:
        there = plays_there(environment, algorithm.actor) and not config.compute.emulate_step_s
        return StepCollection(
            environment,
            algorithm.actor,
            layout,
            seed=config.seed,
            steps=config.collect.steps,
            make_rollout=DeviceRollout if there else Rollout,
        )
    return EvaluationCollection(
        environment, algorithm.actor, layout, seed=config.seed, data=problem.data
    )


def _own_player(config: RunConfig, environment: Environment) -> BlockPlayer:
    """Build the player of the controller, which acts where its parameters lie."""
    compute = replace(config.compute, device=config.controller.device)
    return block_player_of(
        replace(config, compute=compute),
        spec_of_environment(config, environment),
        environment=environment,
    )


def refuse_free(config: RunConfig) -> None:
    """Refuse free collection where there is no replay service that collectors could write to.

    Raises:
        ConfigError: It is configured.
    """
    if config.collect.mode == "free":
        raise ConfigError(NEEDS_SERVICES)


def plan_of(config: RunConfig) -> BlockPlan:
    """Return the blocks of an iteration, or in free mode of a term."""
    copies, collect = config.environment.copies, config.collect
    plans = {
        "inline": BlockPlan(copies, copies),
        "keyed": BlockPlan(copies, collect.block),
        "free": FreePlan(2**48, collect.block),
    }
    return plans[collect.mode]


def block_player_of(
    config: RunConfig,
    spec: EnvironmentSpec,
    *,
    processes: bool = False,
    environment: Environment | None = None,
) -> BlockPlayer:
    """Build a player of a run's blocks, with parameters of its own.

    Args:
        config: The configuration.
        spec: Facts about the environment.
        processes: True if each copy is played in a process of its own.
        environment: Plays the blocks of as many copies, and is closed with the player.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
    """
    named = config.environment
    start = partial(EnvironmentProcess, named.name, agents=named.agents, params=named.params)
    return BlockPlayer(
        partial(environment_of, config),
        algorithm_of(config, spec),
        plan_of(config),
        seed=config.seed,
        start_copy=start if processes else None,
        environment=environment,
    )


def _priority_of(
    config: RunConfig, agents: Sequence[AgentSpec], problem: Problem
) -> Priority | None:
    if config.sampling.method != "prioritised":
        return None
    gain = config.sampling.priority_gain
    layout = problem.episodes
    by = layout.columns.get(TD_ERROR, layout.paid) if layout else layout_of(agents).paid
    return Priority(first=by.start, count=by.stop - by.start, gain=gain)


def initial_algorithm(config: RunConfig, training: Training) -> Algorithm:
    """Build another copy of a run's algorithm, with the parameters that it began with."""
    return _controllers_algorithm(config, training.environment)


def _controllers_algorithm(config: RunConfig, spec: EnvironmentSpec) -> Algorithm:
    """Build the algorithm with parameters on ``controller.device``, units on ``compute.device``.

    Raises:
        ConfigError: A device is not there, or the configuration is inconsistent.
    """
    asked, make = config.controller.device, partial(algorithm_of, environment=spec)
    placed = partial(device_of, accelerated=is_accelerated(config, spec))
    if placed(asked, setting="controller.device") == placed(config.compute.device):
        return make(config)
    here = replace(config, compute=replace(config.compute, device=asked))
    return computed_elsewhere(make(here), make(config))


def rows_held(config: RunConfig, problem: Problem) -> int:
    """Return the rows that a table of replay holds within both limits, before it is refused."""
    return min(config.replay.capacity, config.replay.capacity_bytes // (4 * problem.row_size))


def capacity_of(config: RunConfig, training: Training) -> int:
    """Return the number of transitions that replay holds within both of its limits.

    Raises:
        ConfigError: The capacity is below the warm-up.
    """
    settings, row_bytes = config.replay, 4 * training.problem.row_size
    warmup, capacity = training.collector.warmup, rows_held(config, training.problem)
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
    return capacity


def drawn_rows(config: RunConfig, training: Training) -> int:
    """Return the rows before a collection from which later iterations draw, at most."""
    data = training.problem.data
    return 0 if data.epochs or not data.batch_size else capacity_of(config, training)


def audit_period(config: RunConfig, data: DataMode) -> int:
    """Iterations between two audits; 0 for none, as where learners draw samples of their own."""
    return config.audit.every if data.exact else 0


def spare_rows(config: RunConfig, training: Training) -> int:
    """Rows that replay keeps beyond its capacity, so that withdrawn iterations sample alike.

    They cover the collection that is gathered while the one before is not durable yet, and those of
    the iterations for which a report may be late and, before them, of those from one audit to the
    next, or those of two periods of checkpoints. Where lengths of episodes differ, they are at most
    as many as the capacity or ``SPARE_BYTES``, and at least as many as the capacity where nobody
    knows how long an episode gets.

    Raises:
        ConfigError: They are more than replay counts.
    """
    problem, copies, collector = training.problem, config.environment.copies, training.collector
    capacity = capacity_of(config, training)
    steps = max(config.collect.steps, 1 + collector.step_limit)
    rows = collector.collection.rows or copies * steps
    iterations = _repeatable(config, training) if problem.data.exact else 0
    withdrawn = 1 + -(-iterations // training.trainer.updates)
    spare = withdrawn * rows + collector.collection.ahead * steps
    if not (collector.collection.rows or collector.horizon):
        spare = min(spare, max(capacity, SPARE_BYTES // (4 * problem.row_size)))
        spare = spare if collector.step_limit else max(spare, capacity)
    if capacity + spare >= POSITIONS:
        raise ConfigError(
            f"replay has no room for the {spare} rows of {iterations} iterations, which "
            f"checkpoint.every = {config.checkpoint.every} and audit.every = {config.audit.every} "
            "keep beyond its capacity; lower them"
        )
    return spare


def _repeatable(config: RunConfig, training: Training) -> int:
    """Iterations that can draw their rows again, at least; as many with a store as without one."""
    # The newest checkpoint may still be on its way to a store when the next one is due.
    period = max(audit_period(config, training.problem.data), 2 * config.checkpoint.every)
    return period + WINDOW


def _recomputed(config: RunConfig, training: Training) -> bool:
    """True if iterations can be computed again from a checkpoint, to the same bits."""
    exact = training.problem.data.exact and config.controller.inexact != "commit"
    return config.collect.mode != "free" and exact


def lag_of(config: RunConfig, training: Training) -> float:
    """Seconds whose iterations are stored together; 0 where each is, before others follow it."""
    kept = not config.store.url or not _recomputed(config, training)
    return 0.0 if kept else config.store.lag_s


def pace_of(config: RunConfig) -> Pace:
    """Return how far free blocks and iterations may run ahead of each other."""
    collect = config.collect
    return Pace(
        episodes_per_update=0 if config.collectors.containers else config.environment.copies,
        window=collect.window,
        warmup=collect.warmup_episodes,
        max_lag=collect.max_lag,
    )
