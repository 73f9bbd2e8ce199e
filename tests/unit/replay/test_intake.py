"""Each episode is stored once, whole and in its writer's order, also by a reopened table."""

from pathlib import Path

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.replay import EpisodeLayout, MemoryStorage, RingFile, Table
from fullrank.replay import intake as module
from fullrank.replay.authorship import ENTRIES, Authorship, authorships
from fullrank.replay.draw_window import Reach
from fullrank.replay.intake import Arrival, Fate, Intake, WrittenEpisode
from fullrank.replay.pace import Pace

LAYOUT = EpisodeLayout(observation_sizes=(1,), action_sizes=(2,))
ROW_SIZE = LAYOUT.row_size + ENTRIES
FREE = Pace(updates_per_episode=0.0, slack=0, window=1, warmup=0, max_lag=2**40)
CAPACITY = 60


def arrival(pace: Pace = FREE) -> Arrival:
    return Arrival(episodes=LAYOUT, pace=pace)


def table(capacity: int = CAPACITY) -> Table:
    return Table(MemoryStorage(capacity, ROW_SIZE), capacity=capacity)


def episode(writer: int, sequence: int, *, version: int = 0, steps: int = 2) -> WrittenEpisode:
    rows = np.zeros((steps + 1, LAYOUT.row_size), np.float32)
    rows[:, LAYOUT.observation] = 100 * writer + sequence
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = steps
    return WrittenEpisode(writer, sequence, version, rows)


def held(rows: Table) -> list[tuple[int, int]]:
    """Writer and sequence of every episode that the table holds, each of which must be whole."""
    content: FloatArray = rows.gather(np.arange(rows.tail, rows.head))
    every = authorships(content)
    ends = np.flatnonzero(every[:, 3])
    for end in ends:
        steps = int(content[end, LAYOUT.length])
        first = max(0, end - steps)
        assert np.unique(content[first : end + 1, LAYOUT.observation]).tolist() == [
            100 * every[end, 0] + every[end, 1]
        ]
    numbers = every[ends, 3]
    assert (np.diff(numbers) == 1).all()
    return [(writer, sequence) for writer, sequence, *_ in every[ends].tolist()]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_repeated_every_acknowledged_episode_is_in_the_table_once(seed: int) -> None:
    """Three writers send their last episode again or the one after it, in random groups."""
    generator = np.random.default_rng(seed)
    rows = table(1000)
    intake = Intake(rows, arrival())
    sent: dict[int, int] = {}
    acknowledged: set[tuple[int, int]] = set()
    for _ in range(20):
        if generator.random() < 0.2:
            intake = Intake(rows, arrival())
        group = []
        for writer, step, steps in generator.integers(
            (1, 0, 1), (4, 3, 5), size=(generator.integers(8), 3)
        ).tolist():
            sent[writer] = max(1, sent.get(writer, 0) + step)
            group.append(episode(writer, sent[writer], steps=steps))
        for each, outcome in zip(group, intake.store(group), strict=True):
            assert outcome.fate in (Fate.STORED, Fate.REPEATED)
            acknowledged.add((each.writer, each.sequence))
        assert sorted(held(rows)) == sorted(acknowledged)
        for writer, last in sent.items():
            ours = [sequence for of, sequence in held(rows) if of == writer]
            assert ours == sorted(ours)
            assert intake.writers.last_of(writer) == (last if ours else 0)


def test_a_repeat_is_known_after_the_table_s_file_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.table"
    RingFile.create(path, row_size=ROW_SIZE, capacity=CAPACITY, sync=False)
    for opening in range(3):
        rows = Table(RingFile(path, sync=False), capacity=CAPACITY)
        intake = Intake(rows, arrival())
        assert intake.draws.episodes == intake.writers.last_of(7) == opening
        group = [episode(7, sequence) for sequence in range(1, opening + 2)]
        fates = [outcome.fate for outcome in intake.store(group)]
        assert fates == [Fate.REPEATED] * opening + [Fate.STORED]
        assert intake.repeated == opening
    assert held(rows) == [(7, 1), (7, 2), (7, 3)]


def test_what_was_passed_over_is_never_acknowledged_nor_stored_later() -> None:
    intake = Intake(rows := table(), arrival())
    bad = episode(1, 2)
    bad.rows[0, LAYOUT.length] = 1
    fates = [each.fate for each in intake.store([episode(1, 1), bad, episode(1, 3), episode(1, 2)])]
    assert fates == [Fate.STORED, Fate.INVALID, Fate.STORED, Fate.PASSED_OVER]
    assert [each.fate for each in intake.store([episode(1, 2)])] == [Fate.PASSED_OVER]
    assert intake.writers.missing(1, first=1) == [2]
    reopened = Intake(rows, arrival())
    assert [each.fate for each in reopened.store([episode(1, 2)])] == [Fate.PASSED_OVER]
    assert held(rows) == [(1, 1), (1, 3)]


def test_an_invalid_episode_is_refused_alone_and_its_field_named() -> None:
    intake = Intake(rows := table(), arrival())
    bad = episode(2, 1)
    bad.rows[0, LAYOUT.action] = 5
    outcomes = intake.store([episode(1, 1), bad, episode(3, 1)])
    assert outcomes[1].reason.startswith("action of agent 0 in step 0 is 5")
    assert held(rows) == [(1, 1), (3, 1)]


def test_what_a_new_writer_has_not_sent_is_missing_and_what_it_has_settled_is_not() -> None:
    intake = Intake(table(), arrival())
    intake.store([episode(5, 6)])
    assert intake.writers.missing(5, first=4) == [4, 5]
    assert intake.writers.missing(5, first=7) == []
    assert intake.writers.missing(6, first=1) == []


def test_parameters_that_are_too_old_are_refused_once_an_iteration_has_asked() -> None:
    pace = Pace(updates_per_episode=1.0, slack=0, window=100, warmup=0, max_lag=2)
    intake = Intake(table(), arrival(pace))
    intake.draws.asked(5)
    stale, fresh = intake.store([episode(1, 1, version=2), episode(1, 2, version=3)])
    assert (stale.fate, fresh.fate) == (Fate.STALE, Fate.STORED)
    assert stale.reason.startswith("version 2 is too old in iteration 5")


def test_episodes_wait_beyond_the_window_until_an_iteration_asks() -> None:
    pace = Pace(updates_per_episode=1.0, slack=0, window=2, warmup=3, max_lag=9)
    intake = Intake(table(), arrival(pace))
    group = [episode(1, sequence) for sequence in range(1, 9)]
    assert intake.admitted(group) == 5
    intake.store(group[:5])
    assert intake.admitted(group[5:]) == 0
    assert intake.draws.may_draw(2)
    assert not intake.draws.may_draw(3)
    intake.draws.asked(2)
    assert intake.admitted(group[5:]) == 2


def test_the_range_of_a_draw_is_kept_until_its_minibatch_was_gathered() -> None:
    intake = Intake(rows := table(), arrival())
    for sequence in range(1, 21):
        intake.store([episode(1, sequence)])
    intake.draws.asked(0)
    assert intake.draws.draw(newest=30) == Reach(30, 60, Authorship(1, 20, 0, 20), lag=0)
    late = [episode(1, sequence) for sequence in range(21, 41)]
    count = intake.admitted(late)
    assert count == 10
    intake.store(late[:count])
    assert rows.tail == 30
    intake.draws.gathered(0)
    assert intake.admitted(late[count:]) == 10
    intake.draws.asked(1)
    intake.draws.draw(newest=CAPACITY)
    intake.draws.gathered(0)  # of the iteration before, once more
    assert not intake.admitted(late[count:])


def test_without_a_ratio_no_row_is_evicted_that_no_iteration_could_have_drawn() -> None:
    intake = Intake(rows := table(), arrival())
    many = [episode(1, sequence) for sequence in range(1, 100)]
    intake.store(many[:20])
    intake.draws.draw(newest=CAPACITY)
    intake.draws.gathered(0)
    intake.store(many[20 : 20 + intake.admitted(many[20:])])
    assert rows.tail == 60
    assert not intake.admitted(many[40:])


def test_a_group_is_no_longer_than_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "rows_per_append", lambda row_bytes: 7)
    intake = Intake(table(), arrival())
    assert intake.admitted([episode(1, sequence) for sequence in range(1, 9)]) == 2


def test_a_table_by_position_does_not_become_one_of_arrivals() -> None:
    rows = table()
    rows.append(0, np.ones((3, ROW_SIZE), np.float32) * 0)
    with pytest.raises(ConfigError, match="by position"):
        Intake(rows, arrival())


def test_rules_are_read_as_they_were_written() -> None:
    for rules in (arrival(), Arrival(episodes=None, pace=FREE)):
        assert Arrival.of_json(rules.to_json()) == rules
