"""Laws of every sampler that ``sampling.method`` names."""

from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fullrank.common.types import FloatArray
from fullrank.config import load
from fullrank.config.tree import SamplingSettings
from fullrank.net.messages import sample_message, sample_of
from fullrank.replay.ring_file import RingFile
from fullrank.replay.samplers import Priority, Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.wiring.training import Training, training_of

SAMPLERS = get_args(get_type_hints(SamplingSettings)["method"])
CAPACITY = 40


@pytest.fixture(scope="module", params=SAMPLERS)
def training(request: pytest.FixtureRequest) -> Training:
    """A run with this sampler."""
    options = {"sampling.method": request.param, "sampling.priority_gain": 2.5}
    return training_of(load(options=options | {"algorithm.hidden": 16}).check().config)


@pytest.fixture
def rows(training: Training) -> FloatArray:
    """Three times the capacity; their rewards are of all sizes, most of them small."""
    made = np.random.default_rng(0).standard_normal(
        (3 * CAPACITY, training.collector.layout.row_size)
    )
    made[:, training.collector.layout.reward] **= 3
    return made.astype(np.float32)


def memory(row_size: int) -> Table:
    return Table(MemoryStorage(CAPACITY, row_size), capacity=CAPACITY)


def on_disk(storage: RingFile) -> Table:
    return Table(storage, capacity=CAPACITY)


def sampled(training: Training, table: Table, iteration: int) -> FloatArray:
    """The iteration's minibatch, from a sample that was encoded and decoded."""
    sample = training.trainer.sample(iteration, tail=table.tail, head=table.head)
    return table.minibatch(sample_of(sample_message(sample)))


def in_one_go(table: Table, rows: FloatArray) -> None:
    for start in range(0, len(rows), CAPACITY):
        table.append(start, rows[start : start + CAPACITY])


def test_a_table_in_memory_on_disk_and_opened_again_gives_the_same_rows(
    training: Training, rows: FloatArray, tmp_path: Path
) -> None:
    path = tmp_path / "t.table"
    kept = on_disk(RingFile.create(path, row_size=rows.shape[1], capacity=CAPACITY, sync=False))
    held = memory(rows.shape[1])
    for start in range(0, len(rows), 7):
        for table in (kept, held):
            table.append(start, rows[start : start + 7])
        expected = sampled(training, held, iteration=start)
        np.testing.assert_array_equal(sampled(training, kept, iteration=start), expected)
        again = on_disk(RingFile(path, sync=False))
        np.testing.assert_array_equal(sampled(training, again, iteration=start), expected)


def test_a_run_that_is_resumed_draws_what_it_would_have_drawn(
    training: Training, rows: FloatArray
) -> None:
    """The resumed table holds other rows for a while, drops them and gets the right ones."""
    whole, resumed = memory(rows.shape[1]), memory(rows.shape[1])
    in_one_go(whole, rows[:60])
    in_one_go(resumed, rows[:50])
    resumed.append(50, rows[100:108])
    sampled(training, resumed, iteration=0)
    resumed.truncate(50)
    resumed.append(50, rows[50:60])
    for iteration in range(5):
        tail = max(whole.tail, resumed.tail)
        sample = training.trainer.sample(iteration, tail=tail, head=60)
        np.testing.assert_array_equal(whole.minibatch(sample), resumed.minibatch(sample))


def test_rows_are_drawn_as_often_as_the_sampler_promises(
    training: Training, rows: FloatArray
) -> None:
    table, layout = memory(rows.shape[1]), training.collector.layout
    in_one_go(table, rows)
    held = rows[table.tail : table.head]
    draws = np.concatenate([sampled(training, table, iteration) for iteration in range(40)])
    observed = (draws[:, None, :3] == held[None, :, :3]).all(axis=2).sum(axis=0)
    shares = np.ones(CAPACITY)
    if training.trainer.sample(0, tail=0, head=1).priority is not None:
        shares += np.floor(2.5 * np.abs(held[:, layout.reward].astype(float)).max(axis=1))
        assert len(set(shares)) > 5
    assert observed.sum() == len(draws)
    assert chisquare(observed, len(draws) * shares / shares.sum()).pvalue > 1e-3


PRIORITY = Priority(first=1, count=2, gain=1.0)
Rewards = st.lists(st.integers(-6, 6), max_size=9)


@settings(max_examples=60)
@given(st.lists(st.tuples(Rewards, st.booleans()), min_size=1, max_size=30), st.data())
def test_a_draw_is_one_from_a_list_that_has_each_position_as_often_as_it_has_tickets(
    appends: list[tuple[list[int], bool]], data: st.DataObject
) -> None:
    """Draws agree whenever tickets are counted and wherever old ones are dropped."""
    table = Table(MemoryStorage(9, 3), capacity=9)
    rewards: list[int] = []
    for added, look in appends:
        first = len(rewards)
        rewards += added
        table.append(first, np.array([[7, 0, each] for each in added], np.float32).reshape(-1, 3))
        if look and table.tail < table.head:
            tail = data.draw(st.integers(table.tail, table.head - 1))
            sample = Sample(
                table="t",
                seed=1,
                iteration=first,
                tail=tail,
                head=table.head,
                size=50,
                priority=PRIORITY,
            )
            held = range(tail, table.head)
            listed = np.repeat(held, [1 + abs(rewards[each]) for each in held])
            one_each = Sample(table="t", seed=1, iteration=first, tail=0, head=len(listed), size=50)
            expected = [rewards[each] for each in listed[one_each.positions()]]
            assert table.minibatch(sample)[:, 2].tolist() == expected
