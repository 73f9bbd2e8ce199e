"""Episodes as facts of rows: layout, index and draws."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import InvalidContribution, OutOfRange
from fullrank.common.types import FloatArray
from fullrank.net.messages import sample_message, sample_of
from fullrank.replay.episodes import EpisodeLayout, episodes_in
from fullrank.replay.mapped_table import MappedTable
from fullrank.replay.ring_file import RingFile
from fullrank.replay.samplers import EpisodeDraw, Priority, Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table

CAPACITY = 40
LENGTH = 1
"""Column of the length; column 0 holds the position."""
BY_POSITION = Priority(first=0, count=1, gain=0.25)


def rows_of(lengths: list[int], *, first: int = 0) -> FloatArray:
    count = sum(lengths) + len(lengths)
    rows = np.zeros((count, 2), np.float32)
    rows[:, 0] = np.arange(first, first + count)
    rows[np.cumsum(np.array(lengths, int) + 1) - 1, LENGTH] = lengths
    return rows


def sample(
    table: Table,
    *,
    newest: int = 100,
    size: int = 60,
    iteration: int = 0,
    priority: Priority | None = None,
) -> Sample:
    return Sample(
        table="t",
        seed=1,
        iteration=iteration,
        tail=table.tail,
        head=table.head,
        size=size,
        priority=priority,
        draw=EpisodeDraw(length=LENGTH, newest=newest),
    )


def table() -> Table:
    return Table(MemoryStorage(CAPACITY, 2), capacity=CAPACITY)


def drawn(batch: FloatArray) -> list[list[int]]:
    """Positions of the rows of each episode."""
    return [batch[place, 0].astype(int).tolist() for place in episodes_in(batch, LENGTH)]


@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=12))
def test_samples_are_whole_episodes_that_lie_in_the_table(appends: list[list[int]]) -> None:
    held, rows = table(), np.empty((0, 2), np.float32)
    for iteration, lengths in enumerate(appends):
        rows = np.concatenate([rows, rows_of(lengths, first=len(rows))])
        held.append(held.head, rows[held.head :])
        ends = np.flatnonzero(rows[:, LENGTH])
        whole = [
            list(range(start, end + 1))
            for end in ends.tolist()
            if (start := end - int(rows[end, LENGTH])) >= held.tail
        ]
        for newest in (1, 3, 100):
            wanted = sample(held, newest=newest, size=200, iteration=iteration)
            episodes = drawn(held.minibatch(sample_of(sample_message(wanted))))
            assert len(episodes) == 200
            assert {tuple(episode) for episode in episodes} == set(map(tuple, whole[-newest:]))
        for tail in range(held.tail, whole[-1][0] + 1, 3):
            wanted = replace(sample(held, size=200, iteration=iteration), tail=tail)
            within = {tuple(episode) for episode in whole if episode[0] >= tail}
            assert set(map(tuple, drawn(held.minibatch(wanted)))) == within


@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=12))
def test_an_episode_is_drawn_as_often_as_its_rows_have_tickets(appends: list[list[int]]) -> None:
    """Positions stand for rewards; draws are those from a list of tickets."""
    held = table()
    for iteration, lengths in enumerate(appends):
        held.append(held.head, rows_of(lengths, first=held.head))
        for newest in (1, 3, 100):
            whole = held._examined(LENGTH).whole(tail=held.tail, head=held.head, newest=newest)
            episodes = [list(range(start, end + 1)) for start, end in np.stack(whole, 1).tolist()]
            tickets = [sum(1 + each // 4 for each in rows) for rows in episodes]
            listed = np.repeat(np.arange(len(episodes)), tickets)
            plain = Sample(
                table="t", seed=1, iteration=iteration, tail=0, head=len(listed), size=60
            )
            wanted = sample(held, newest=newest, iteration=iteration, priority=BY_POSITION)
            got = drawn(held.minibatch(sample_of(sample_message(wanted))))
            assert got == [episodes[each] for each in listed[plain.positions()]]


@pytest.mark.parametrize("priority", [None, BY_POSITION], ids=["uniform", "prioritised"])
def test_a_table_opened_again_and_a_mapped_one_draw_the_same_episodes(
    tmp_path: Path, priority: Priority | None
) -> None:
    path = tmp_path / "t.table"
    storage = RingFile.create(path, row_size=2, capacity=CAPACITY, sync=False)
    kept, held = Table(storage, capacity=CAPACITY), table()
    mapped = MappedTable(storage.path, storage.instance)
    lengths = np.random.default_rng(0).integers(1, 7, size=(20, 3))
    for iteration, own in enumerate(lengths.tolist()):
        rows = rows_of(own, first=held.head)
        kept.append(kept.head, rows)
        held.append(held.head, rows)
        wanted = sample(held, newest=4, iteration=iteration, priority=priority)
        expected = held.minibatch(wanted)
        np.testing.assert_array_equal(kept.minibatch(wanted), expected)
        gathered = mapped.gather(wanted)
        assert gathered is not None
        np.testing.assert_array_equal(gathered.rows, expected)
    again = Table(RingFile(path, sync=False), capacity=CAPACITY)
    np.testing.assert_array_equal(again.minibatch(wanted), expected)


def test_rows_beyond_a_truncated_head_are_examined_again() -> None:
    held = table()
    held.append(0, rows_of([3, 2]))
    held.minibatch(sample(held))
    held.truncate(4)
    held.append(4, rows_of([1, 1], first=4))
    assert {len(episode) for episode in drawn(held.minibatch(sample(held)))} == {4, 2}


def test_a_table_without_a_whole_episode_draws_none() -> None:
    held = table()
    held.append(0, rows_of([9])[:5])
    with pytest.raises(OutOfRange, match="no whole episode"):
        held.minibatch(sample(held))


def test_lengths_that_are_not_those_of_episodes_are_refused() -> None:
    held, rows = table(), rows_of([3, 2])
    rows[-1, LENGTH] = 4
    held.append(0, rows)
    with pytest.raises(InvalidContribution, match="not those of episodes"):
        held.minibatch(sample(held))
    with pytest.raises(InvalidContribution, match="whole episodes"):
        episodes_in(rows_of([3, 2])[1:], LENGTH)


@pytest.mark.parametrize("draw", [EpisodeDraw(length=2, newest=1), EpisodeDraw(length=1, newest=0)])
def test_draws_that_do_not_fit_the_rows_are_refused(draw: EpisodeDraw) -> None:
    held = table()
    held.append(0, rows_of([3, 2]))
    wanted = Sample(table="t", seed=1, iteration=0, tail=0, head=7, size=1, draw=draw)
    with pytest.raises(InvalidContribution, match=r"sample\.episodes"):
        held.minibatch(wanted)


def test_the_parts_of_a_row_are_disjoint_and_cover_it() -> None:
    layout = EpisodeLayout(observation_sizes=(2, 3), action_sizes=(4, 1), state_size=6)
    columns = np.arange(layout.row_size)
    parts = [columns[part] for part in (layout.observation, layout.state)]
    parts += [columns[part] for part in (layout.available, layout.action)]
    single = [layout.reward, layout.terminated, layout.length]
    np.testing.assert_array_equal(np.concatenate([*parts, single]), columns)
    assert [len(part) for part in parts] == [5, 6, 5, 2]


def test_the_joint_observation_is_the_state_where_there_is_no_other() -> None:
    layout = EpisodeLayout(observation_sizes=(2, 3), action_sizes=(4, 1))
    assert layout.state == layout.observation
    assert layout.row_size == 5 + 5 + 2 + 3


def test_synthetic_episodes_are_episodes() -> None:
    layout = EpisodeLayout(observation_sizes=(2, 3), action_sizes=(4, 1))
    rows = layout.synthetic(np.random.default_rng(0), 7)
    assert len(episodes_in(rows, layout.length)) == 7


def test_derived_columns_follow_a_step_and_are_named() -> None:
    plain = EpisodeLayout(observation_sizes=(2, 3), action_sizes=(4, 1))
    layout = replace(plain, derived=(("value", 2), ("advantage", 1)))
    assert layout.row_size == plain.row_size + 3
    assert layout.columns == {
        "value": slice(plain.row_size, plain.row_size + 2),
        "advantage": slice(plain.row_size + 2, plain.row_size + 3),
    }
    assert layout.place_of(plain.row_size + 2) == "advantage"
    assert layout.place_of(layout.length) == "length"
