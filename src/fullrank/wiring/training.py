"""Construction of the controller's side of a run: its collector and its trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fullrank.algorithms import (
    Algorithm,
    Problem,
)
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.devices import computed_elsewhere, device_of
from fullrank.common.errors import ConfigError
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec, Environment
from fullrank.environments.capabilities import offers_masks, own_state_size
from fullrank.environments.processes import EnvironmentProcess
from fullrank.replay.authorship import MOST
from fullrank.replay.samplers import Priority
from fullrank.training.block_player import BlockPlayer
from fullrank.training.blocks import BlockPlan, WriterPlan
from fullrank.training.collector import Collector
from fullrank.training.free import FreeRollout
from fullrank.training.keyed import KeyedRollout
from fullrank.training.trainer import Trainer
from fullrank.wiring.plugins import algorithm_of, copies_of, environment_of


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
    algorithm = _controllers_algorithm(
        config,
        environment.agents,
        state_size=own_state_size(environment),
        masked=offers_masks(environment),
    )
    collector = Collector(
        partial(copies_of, config),
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
        partial(copies_of, config),
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
    gain = config.sampling.priority_gain
    if problem.episodes is not None:
        return Priority(first=problem.episodes.reward, count=1, gain=gain)
    layout = layout_of(agents)
    return Priority(first=layout.reward.start, count=layout.agents, gain=gain)


def initial_algorithm(config: RunConfig, training: Training) -> Algorithm:
    """Build another copy of a run's algorithm, with the parameters that it began with."""
    return _controllers_algorithm(
        config,
        training.collector.agents,
        state_size=training.state_size,
        masked=training.masked,
    )


def _controllers_algorithm(
    config: RunConfig, agents: Sequence[AgentSpec], *, state_size: int, masked: bool
) -> Algorithm:
    """Build the algorithm with parameters on ``controller.device``, units on ``compute.device``.

    Raises:
        ConfigError: A device is not there, or the configuration is inconsistent.
    """
    asked, computing = config.controller.device, device_of(config.compute.device)
    make = partial(algorithm_of, agents=agents, state_size=state_size, masked=masked)
    if device_of(asked, setting="controller.device") == computing:
        return make(config)
    here = replace(config, compute=replace(config.compute, device=asked))
    return computed_elsewhere(make(here), make(config))
