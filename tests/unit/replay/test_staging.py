"""Staged blocks: kept under a grant, and taken by their digest."""

import numpy as np
import pytest

from fullrank.common.errors import InvalidContribution, NotFound
from fullrank.common.types import FloatArray
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.staging import DIFFERING, Grant, Staging, judged

GRANT = Grant(most_rows=3, episodes=None)
LAYOUT = EpisodeLayout(observation_sizes=(2,), action_sizes=(2,))


def rows(value: float, count: int = 3) -> FloatArray:
    return np.full((count, 4), value, np.float32)


def staged(staging: Staging, block: int, value: float) -> bytes:
    """Stage a block of one episode; returns its digest."""
    digest = judged(rows(value), [3], None)
    staging.keep(7, block, digest, rows(value))
    return digest


@pytest.fixture
def staging() -> Staging:
    staging = Staging()
    staging.grant(7, range(2), GRANT)
    return staging


def test_blocks_are_taken_in_their_order(staging: Staging) -> None:
    second, first = staged(staging, 1, 1.0), staged(staging, 0, 2.0)
    taken = staging.staged(7, 0, [first, second])
    assert [None if each is None else float(each[0, 0]) for each in taken] == [2.0, 1.0]


def test_of_two_blocks_of_one_number_the_one_of_the_digest_is_taken(staging: Staging) -> None:
    staged(staging, 0, 1.0)
    wanted, other = staged(staging, 0, 2.0), staged(staging, 1, 3.0)
    (taken, unknown) = staging.staged(7, 0, [wanted, wanted])
    assert taken is not None
    assert taken.tobytes() == rows(2.0).tobytes()
    assert unknown is None
    assert staging.staged(7, 0, [other]) == [None]


def test_of_blocks_that_differ_the_newest_are_kept(staging: Staging) -> None:
    digests = [staged(staging, 0, float(value)) for value in range(DIFFERING + 1)]
    assert [staging.staged(7, 0, [digest])[0] is None for digest in digests] == [True, False, False]


def test_what_no_grant_names_is_not_kept(staging: Staging) -> None:
    for iteration, block in ((6, 0), (7, 2)):
        with pytest.raises(NotFound, match=f"block {block} of iteration {iteration} is not"):
            staging.granted(iteration, block, 1)
    with pytest.raises(InvalidContribution, match="makes 4 rows, and 3 are granted"):
        staging.granted(7, 0, 4)


def test_a_grant_ends_when_another_one_was_accepted_after_it(staging: Staging) -> None:
    digest = staged(staging, 0, 1.0)
    staging.grant(1, range(5, 6), GRANT)
    staging.accepted(7, 0)
    assert staging.staged(7, 0, [digest])[0] is not None  # the acceptance may be repeated
    staging.accepted(1, 5)
    assert [staging.is_granted(7, 0), staging.is_granted(1, 5)] == [False, True]
    assert staging.staged(7, 0, [staged(staging, 0, 1.0)]) == [None]


def test_free_blocks_are_granted_and_accepted_one_by_one_in_any_order(staging: Staging) -> None:
    for block in (3, 4, 5):
        staging.grant(1, range(block, block + 1), GRANT)
        staging.keep(1, block, bytes([block]), rows(float(block)))
    staging.accepted(1, 4)
    staging.accepted(1, 3)
    assert [staging.is_granted(1, block) for block in (3, 4, 5)] == [True, False, True]
    (taken,) = staging.staged(1, 5, [bytes([5])])
    assert taken is not None
    assert taken[0, 0] == 5.0


def test_a_grant_that_is_repeated_keeps_what_is_staged(staging: Staging) -> None:
    digest = staged(staging, 0, 1.0)
    staging.grant(7, range(2), GRANT)
    assert staging.staged(7, 0, [digest])[0] is not None


def test_lengths_are_part_of_a_digest() -> None:
    assert judged(rows(1.0), [1, 2], None) != judged(rows(1.0), [2, 1], None)


@pytest.mark.parametrize(
    ("lengths", "layout", "named"),
    [
        ([], None, "lengths has no entry"),
        ([3, 0], None, "lengths has no entry, or an entry of 0"),
        ([4], None, "lengths add up to 4, for 3 rows"),
        ([2], LAYOUT, "a minibatch of episodes is made of whole episodes"),
    ],
)
def test_rows_that_are_not_episodes_of_their_lengths_are_refused(
    lengths: list[int], layout: EpisodeLayout | None, named: str
) -> None:
    wide = np.zeros((3, LAYOUT.row_size), np.float32)
    with pytest.raises(InvalidContribution, match=named):
        judged(wide, lengths, layout)


def test_episodes_are_checked_step_by_step() -> None:
    played = LAYOUT.synthetic(np.random.default_rng(0), 2)
    lengths = played[played[:, LAYOUT.length] > 0, LAYOUT.length].astype(int).tolist()
    with pytest.raises(InvalidContribution, match="action is not 0 in the last row"):
        judged(played, lengths, LAYOUT)
    played[played[:, LAYOUT.length] > 0, LAYOUT.action] = 0.0
    assert judged(played, lengths, LAYOUT)
    with pytest.raises(InvalidContribution, match="lengths are not those of the rows"):
        judged(played, [*lengths, 1], LAYOUT)
    played[0, LAYOUT.action] = 2.0
    with pytest.raises(InvalidContribution, match="action of agent 0 in step 0"):
        judged(played, lengths, LAYOUT)
    played[0, LAYOUT.reward] = np.nan
    with pytest.raises(InvalidContribution, match="which is not finite"):
        judged(played, lengths, LAYOUT)
