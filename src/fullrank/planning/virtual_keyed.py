"""Keyed collection in virtual time: the bits of the run in one process, and when they are there."""

from itertools import count

import numpy as np

from fullrank.common.types import FloatArray, IntArray
from fullrank.config.tree import RunConfig
from fullrank.planning.virtual_course import VirtualCourse, VirtualHistory
from fullrank.planning.virtual_time import VirtualDurations
from fullrank.replay.episodes import EpisodeLayout, episodes_in
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.centralised import Centralised
from fullrank.wiring import Training, capacity_of, plan_of


def keyed_history(
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
    lengths = lengths_of(rows, layout)
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
        lengths = lengths_of(collected.rows, layout)
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


def lengths_of(rows: FloatArray, layout: EpisodeLayout) -> IntArray:
    """Return the steps of each of the episodes in rows."""
    places = episodes_in(rows, layout.length)
    return np.array([place.stop - place.start - 1 for place in places], np.int64)
