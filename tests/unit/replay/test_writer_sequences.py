"""Exactly the stored sequences are held, and writers are remembered while the table needs them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.replay import writer_sequences as module
from fullrank.replay.writer_sequences import WriterSequences


@given(st.sets(st.integers(1, 40)), st.integers(1, 50))
def test_of_the_window_exactly_the_stored_sequences_are_held(stored: set[int], first: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", 16)
        writers = WriterSequences()
        for position, sequence in enumerate(sorted(stored)):
            writers.store(7, sequence, position, tail=0)
        last = max(stored, default=0)
        window = range(max(1, last - 15), last + 1)
        assert writers.last_of(7) == last
        assert {each for each in range(60) if writers.holds(7, each)} == stored & set(window)
        assert writers.missing(7, first=first) == [
            each for each in window if each >= first and each not in stored
        ]


def test_writers_without_an_episode_in_the_table_are_forgotten_beyond_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 4)
    writers = WriterSequences()
    for position in range(100):
        writers.store(position + 1, 1, position, tail=position - 19)
    assert [each for each in range(1, 101) if writers.holds(each, 1)] == list(range(81, 101))
    for position in range(100, 120):
        writers.store(101, position, position, tail=position)
    assert [each for each in range(1, 102) if writers.last_of(each)] == [98, 99, 100, 101]
