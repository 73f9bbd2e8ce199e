"""Learning in virtual time: real episodes and gradients, and durations as numbers.

It predicts a cluster's results and their times before it is rented: collectors, containers and the
centraliser are the objects of the services, without their processes. The centralised update is
committed; a code adds the time of its round, which ``fullrank simulate`` tells. Equal
configurations give equal histories, and keyed collection with lag 0 gives the bits of the run in
one process.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch

from fullrank.algorithms.values import ValueLearner
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive, stream
from fullrank.common.types import FloatArray, IntArray
from fullrank.config.tree import RunConfig
from fullrank.replay.episodes import EpisodeLayout, episodes_in
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.centralised import Centralised
from fullrank.training.container import Container
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.training.heads import Heads
from fullrank.wiring import (
    Training,
    algorithm_config_of,
    block_player_of,
    capacity_of,
    environment_of,
    plan_of,
    training_of,
)
from fullrank.wiring.containers import container_of, head_size_of
from fullrank.wiring.plugins import spec_of_agents
from fullrank_cmarl.virtual_free import FreeVirtualRun

COPIES = 8
"""Copies in which evaluations are played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualDurations:
    """Durations of a run's phases, in seconds."""

    step_s: float = 0.02
    """Step of an environment on a core of its own."""
    acting_s: float = 0.002
    """Choice of the actions of all copies of a collector."""
    scatter: float = 0.0
    """Standard deviation of the logarithm of a block's duration."""
    update_s: float = 0.1
    """Update of the centraliser, including its round."""
    container_update_s: float = 0.1
    """Update of a container."""
    wire_s: float = 0.001
    """Travel of episodes, or of parameters."""
    cores: int = 0
    """Cores that all actors share; 0: one for each."""

    def __post_init__(self) -> None:
        least = min(self.step_s, self.acting_s, self.scatter, self.wire_s, self.cores)
        if least < 0 or min(self.update_s, self.container_update_s) <= 0:
            raise ConfigError(
                "durations must be at least 0, and those of updates above 0, in virtual time"
            )

    def block_s(self, lengths: IntArray, *, actors: int, key: tuple[int, int, int]) -> float:
        """Return the duration of a block, which ends with its longest episode.

        Args:
            lengths: Steps of each episode.
            actors: Copies that play at a time, in all collectors.
            key: Seed, collector or iteration, and number of the block, which key the scatter.
        """
        crowd = max(1.0, actors / self.cores) if self.cores else 1.0
        normal = stream(key[0], "virtual_block", *key[1:]).standard_normal()
        spread = float(np.exp(self.scatter * (normal - self.scatter / 2)))
        return int(lengths.max()) * (self.step_s * crowd + self.acting_s) * spread


class Agenda:
    """Actions by virtual time; those of equal time are done in the order of their entry.

    Attributes:
        now_s: Time of the action that is being done.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._order = count()
        self._entries: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Enter an action that is done after a delay."""
        heapq.heappush(self._entries, (self.now_s + delay_s, next(self._order), action))

    def next(self, *, until_s: float) -> bool:
        """Advance to the next action and do it; return False if none is due by ``until_s``."""
        if not self._entries or self._entries[0][0] > until_s:
            return False
        self.now_s, _, action = heapq.heappop(self._entries)
        action()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualPoint:
    """An evaluation of the centraliser's greedy policy."""

    time_s: float
    """Virtual time, seconds."""
    iteration: int
    """Number of committed iterations."""
    episodes: int
    """Number of episodes played."""
    env_steps: int
    """Environment steps played."""
    return_mean: float
    """Mean return of the team."""
    win_rate: float | None
    """Share of the episodes that were won; None where there are no wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHistory:
    """The course of a run in virtual time; equal configurations give equal histories."""

    points: tuple[VirtualPoint, ...]
    digest: str
    """Digest of the centraliser's parameters at the end."""
    facts: dict[str, float]
    """Counts and bytes of the whole run, by name."""


class VirtualCourse:
    """Counts a run, and evaluates its policy in regular virtual times.

    Args:
        config: The run's configuration.
        training: Its actor is evaluated.
        every_s: Virtual time between two evaluations, seconds.
        episodes: Episodes of an evaluation.

    Attributes:
        iteration: Committed iterations.
        episodes: Episodes played so far.
        env_steps: Environment steps played so far.
    """

    def __init__(
        self, config: RunConfig, training: Training, *, every_s: float, episodes: int
    ) -> None:
        self._training, self._every_s, self._count = training, every_s, episodes
        self._environment = environment_of(config, copies=min(COPIES, episodes))
        self._seed = derive(config.seed, "virtual_evaluation")
        self._points: list[VirtualPoint] = []
        self.iteration = self.episodes = self.env_steps = 0

    def played(self, lengths: list[int]) -> None:
        """Count episodes of these lengths."""
        self.episodes += len(lengths)
        self.env_steps += sum(lengths)

    def reach(self, time_s: float) -> None:
        """Evaluate the present policy at every evaluation due before or at a time."""
        while (due_s := (len(self._points) + 1) * self._every_s) <= time_s:
            actor = Greedy(self._training.algorithm.actor)
            reached = evaluate(self._environment, actor, self._count, self._seed)
            won = reached.won
            self._points.append(
                VirtualPoint(
                    time_s=due_s,
                    iteration=self.iteration,
                    episodes=self.episodes,
                    env_steps=self.env_steps,
                    return_mean=float(reached.returns.mean()),
                    win_rate=None if won is None else float(won.mean()),
                )
            )

    def history(self, **facts: float) -> VirtualHistory:
        """Return the history so far."""
        self._environment.close()
        counts = {
            "iterations": float(self.iteration),
            "episodes": float(self.episodes),
            "env_steps": float(self.env_steps),
        }
        digest = self._training.trainer.digest()
        return VirtualHistory(points=tuple(self._points), digest=digest, facts={**counts, **facts})


def learn_in_virtual_time(
    config: RunConfig,
    durations: VirtualDurations,
    *,
    until_s: float,
    every_s: float,
    episodes: int,
) -> VirtualHistory:
    """Run until the configured iterations are committed, or the virtual time is over.

    Args:
        config: The run; without collectors one process plays all copies, in lockstep.
        durations: Durations of steps, updates and wires.
        until_s: End, virtual seconds.
        every_s: Virtual time between two evaluations, seconds.
        episodes: Episodes of an evaluation.

    Raises:
        ConfigError: The algorithm does not learn from whole episodes, or something is inconsistent.
    """
    torch.set_num_threads(config.compute.threads)
    learner = algorithm_config_of(config)
    if not isinstance(learner, ValueLearner):
        raise ConfigError(
            f"{config.algorithm.name} does not learn from whole episodes, and virtual time plays "
            "whole ones: use algorithm.name = qmix, vdn or iql"
        )
    training = training_of(config)
    course = VirtualCourse(config, training, every_s=every_s, episodes=episodes)
    layout = training.problem.episodes
    assert layout is not None
    try:
        if isinstance(training.collector.collection, KeyedCollection):
            return _keyed_history(config, training, course, layout, durations, until_s=until_s)
        collector = training.collector
        player = block_player_of(
            config, collector.agents, state_size=collector.state_size, masked=collector.masked
        )
        run = FreeVirtualRun(
            config,
            training,
            player,
            _containers_of(config, training) if config.collectors.containers else [],
            course=course,
            durations=durations,
        )
        try:
            return run.history(until_s=until_s)
        finally:
            player.close()
    finally:
        training.collector.close()


def _containers_of(config: RunConfig, training: Training) -> list[Container]:
    """Build the containers of a run, one for each collector, which share their heads."""
    collector = training.collector
    spec = spec_of_agents(
        config, collector.agents, state_size=collector.state_size, masked=collector.masked
    )
    heads = Heads(head_size_of(config, spec))
    return [
        container_of(config, spec, number=number, heads=heads)
        for number in range(max(1, config.collectors.count))
    ]


def _keyed_history(
    config: RunConfig,
    training: Training,
    course: VirtualCourse,
    layout: EpisodeLayout,
    durations: VirtualDurations,
    *,
    until_s: float,
) -> VirtualHistory:
    """Run until the configured iterations are committed, or the time is over.

    Args:
        config: Its collectors play the blocks, one if there are none.
        training: Collects by blocks.
        course: Counts and evaluates.
        layout: Columns of a row.
        durations: Durations of steps, updates and wires.
        until_s: End, virtual seconds.
    """
    collector, trainer, plan = training.collector, training.trainer, plan_of(config)
    capacity = capacity_of(config, training)
    table = Table(MemoryStorage(capacity, training.problem.row_size), capacity=capacity)
    compute = Centralised(training.problem, training.algorithm.gradients, seed=config.seed).compute
    rows = collector.warm_up()
    table.append(0, rows)
    lengths = _lengths_of(rows, layout)
    course.played(lengths.tolist())
    warm_copies = config.collect.warmup_copies
    step_s = durations.step_s + durations.acting_s
    done_s = float(-(-lengths.sum() // warm_copies)) * step_s
    published_s, idle_s = [done_s], [done_s] * max(1, config.collectors.count)
    rollout = collector.collection
    assert isinstance(rollout, KeyedCollection)
    for iteration in count():
        if iteration == config.iterations or done_s >= until_s:
            break
        collector.publish(iteration)
        collected = collector.collect(iteration)
        table.append(table.head, collected.rows)
        sample = trainer.sample(iteration, tail=table.tail, head=table.head)
        targets = compute(table.minibatch(sample), iteration=iteration)
        lengths = _lengths_of(collected.rows, layout)
        since_s = published_s[rollout.version_of(iteration)] + durations.wire_s
        begin_s = done_s
        for key in plan.keys(iteration):
            own = lengths[plan.copies_of(key.block)]
            place = idle_s.index(min(idle_s))
            block_s = durations.block_s(
                own,
                actors=min(plan.copies, plan.size * len(idle_s)),
                key=(config.seed, iteration, key.block),
            )
            idle_s[place] = max(idle_s[place], since_s) + block_s
            begin_s = max(begin_s, idle_s[place] + durations.wire_s)
        done_s = begin_s + durations.update_s
        if done_s > until_s:
            break
        course.reach(np.nextafter(done_s, 0.0))
        trainer.apply(targets.updates, iteration=iteration)
        published_s.append(done_s)
        course.played(lengths.tolist())
        course.iteration = iteration + 1
    course.reach(min(until_s, done_s))
    return course.history()


def _lengths_of(rows: FloatArray, layout: EpisodeLayout) -> IntArray:
    """Return the steps of each of the episodes in rows."""
    places = episodes_in(rows, layout.length)
    return np.array([place.stop - place.start - 1 for place in places], np.int64)
