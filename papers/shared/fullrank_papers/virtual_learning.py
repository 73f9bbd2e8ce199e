"""Learning in virtual time: real episodes and gradients, and durations as numbers.

It predicts a cluster's results and their times before it is rented: collectors, containers and the
centraliser are the objects of the services, without their processes. The centralised update is
committed; a code adds the time of its round, which ``fullrank simulate`` tells. Equal
configurations give equal histories, and keyed collection with lag 0 gives the bits of the run in
one process.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from itertools import count

import numpy as np
import torch

from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON, FloatArray, IntArray
from fullrank.config.tree import RunConfig
from fullrank.replay.episodes import EpisodeLayout, episodes_in
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.centralised import Centralised
from fullrank.training.container import Container
from fullrank.training.heads import Heads
from fullrank.wiring.containers import container_of, head_size_of
from fullrank.wiring.training import Training, block_player_of, capacity_of, plan_of, training_of
from fullrank_papers.cells import Cell, settings_of
from fullrank_papers.virtual import (
    Evaluations,
    VirtualCourse,
    VirtualDurations,
    VirtualHistory,
)
from fullrank_papers.virtual_free import FreeVirtualRun


def learn_in_virtual_time(
    config: RunConfig, durations: VirtualDurations, asked: Evaluations
) -> VirtualHistory:
    """Run until the configured iterations are committed, or the last evaluation is made.

    Args:
        config: The run; without collectors one process plays all copies, in lockstep.
        durations: Durations of steps, updates and wires.
        asked: The evaluations.

    Raises:
        ConfigError: The algorithm does not learn from whole episodes, or something is inconsistent.
    """
    torch.set_num_threads(config.compute.threads)
    training = training_of(config)
    layout, collector = training.problem.episodes, training.collector
    with closing(collector):
        if layout is None:
            raise ConfigError(
                f"{config.algorithm.name} does not learn from whole episodes, and virtual time "
                "plays whole ones: use algorithm.name = qmix, vdn, iql or coma"
            )
        course = VirtualCourse(config, training, asked)
        if isinstance(collector.collection, KeyedCollection):
            return _keyed_history(config, training, course, layout, durations)
        player = block_player_of(config, training.environment)
        run = FreeVirtualRun(
            config,
            training,
            player,
            _containers_of(config, training) if config.collectors.containers else [],
            course=course,
            durations=durations,
        )
        with closing(player):
            return run.history()


def virtual_cell(
    name: str,
    config: RunConfig,
    durations: VirtualDurations,
    asked: Evaluations,
    *,
    told: Callable[[VirtualHistory], JSON] = VirtualHistory.told,
) -> Cell:
    """A run in virtual time as a cell.

    Args:
        name: Name of the cell.
        config: The run.
        durations: Durations of steps, updates and wires.
        asked: The evaluations.
        told: What the cell keeps of the history.
    """
    settings = {
        "run": settings_of(config),
        "durations": asdict(durations),
        "evaluations": asdict(asked),
    }
    return Cell(
        name=name,
        settings=settings,
        compute=lambda: told(learn_in_virtual_time(config, durations, asked)),
    )


def _containers_of(config: RunConfig, training: Training) -> list[Container]:
    """Build the containers of a run, one for each collector, which share their heads."""
    spec = training.environment
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
) -> VirtualHistory:
    """Run until the configured iterations are committed, or the last evaluation is made.

    Args:
        config: Its collectors play the blocks; without any the learner does, and nothing travels.
        training: Collects by blocks.
        course: Counts and evaluates.
        layout: Columns of a row.
        durations: Durations of steps, updates and wires.
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
    wire_s = durations.wire_s if config.collectors.count else 0.0
    published_s, idle_s = [done_s], [done_s] * max(1, config.collectors.count)
    rollout = collector.collection
    assert isinstance(rollout, KeyedCollection)
    for iteration in count():
        if iteration == config.iterations or done_s >= course.until_s:
            break
        number, further = divmod(iteration, trainer.updates)
        if not further:
            collector.publish(number)
            collected, first = collector.collect(number), table.head
            table.append(first, collected.rows)
        sample = trainer.sample(iteration, tail=table.tail, head=table.head, first=first)
        targets = compute(table.minibatch(sample), iteration=iteration)
        lengths = _lengths_of(collected.rows, layout)
        since_s = published_s[rollout.version_of(number)] + wire_s
        begin_s = done_s
        for key in () if further else plan.keys(number):
            own = lengths[plan.copies_of(key.block)]
            place = idle_s.index(min(idle_s))
            block_s = durations.block_s(own, key=(config.seed, number, key.block))
            idle_s[place] = max(idle_s[place], since_s) + block_s
            begin_s = max(begin_s, idle_s[place] + wire_s)
        done_s = begin_s + durations.update_s
        if done_s > course.until_s:
            break
        course.reach(np.nextafter(done_s, 0.0))
        trainer.apply(targets.updates, iteration=iteration)
        course.iteration = iteration + 1
        if not further:
            course.played(lengths.tolist())
        if iteration + 1 == (number + 1) * trainer.updates:
            published_s.append(done_s)
    course.reach(min(course.until_s, done_s))
    return course.history()


def _lengths_of(rows: FloatArray, layout: EpisodeLayout) -> IntArray:
    """Return the steps of each of the episodes in rows."""
    places = episodes_in(rows, layout.length)
    return np.array([place.stop - place.start - 1 for place in places], np.int64)
