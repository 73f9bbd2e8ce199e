"""The authorship of an episode lies in its rows, exactly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.replay.authorship import ENTRIES, MOST, Authorship, authorships, joined

NUMBERS = st.integers(0, MOST)


@given(st.lists(st.tuples(st.integers(1, 4), st.tuples(*[NUMBERS] * 4)), min_size=1, max_size=5))
def test_joined_episodes_hold_their_rows_and_who_wrote_them(
    drawn: list[tuple[int, tuple[int, int, int, int]]],
) -> None:
    generator = np.random.default_rng(0)
    episodes = [generator.standard_normal((rows, 3)).astype(np.float32) for rows, _ in drawn]
    authors = [Authorship(*numbers) for _, numbers in drawn]
    whole = joined(episodes, authors)
    assert np.array_equal(whole[:, :-ENTRIES], np.concatenate(episodes))
    read, ends = authorships(whole), np.cumsum([rows for rows, _ in drawn]) - 1
    assert [Authorship(*numbers) for numbers in read[ends].tolist()] == authors
    assert not np.delete(read, ends, axis=0).any()
    assert np.array_equal(authorships(whole[:, -ENTRIES:]), read)
