"""An episode that cannot have been played is refused by field."""

from collections.abc import Callable

import numpy as np
import pytest

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.staging import judged

LAYOUT = EpisodeLayout(observation_sizes=(2, 3), action_sizes=(2, 3), state_size=2)


def played() -> FloatArray:
    """An episode of four steps, in which the first agent is dead from the third on."""
    rows = LAYOUT.synthetic(np.random.default_rng(0), 1)[-1:].repeat(5, axis=0)
    rows[:, LAYOUT.length] = (0, 0, 0, 0, 4)
    rows[:, LAYOUT.action] = [[1, 2], [0, 0], [-1, 1], [-1, 2], [0, 0]]
    rows[:, LAYOUT.available] = [[1, 1, 1, 0, 1]] * 2 + [[0, 0, 0, 1, 1]] * 3
    rows[:, LAYOUT.terminated] = (0, 0, 0, 1, 0)
    return rows


def assigned(row: int, column: int, value: float) -> Callable[[FloatArray], None]:
    def assign(rows: FloatArray) -> None:
        rows[row, column] = value

    return assign


ACTION, AVAILABLE = LAYOUT.action.start, LAYOUT.available.start
WRONG = {
    "made of whole episodes": assigned(4, LAYOUT.length, 3),
    "is made of whole episodes": assigned(4, LAYOUT.length, 0),
    "a minibatch of episodes is made of whole": assigned(2, LAYOUT.length, 3),
    "terminated": assigned(1, LAYOUT.terminated, 1),
    "terminated is": assigned(4, LAYOUT.terminated, 1),
    "terminated is not 0": assigned(3, LAYOUT.terminated, 0.5),
    "available has": assigned(0, AVAILABLE, 2),
    "action of agent 1 in step 0 is 1, which was not available": assigned(0, ACTION + 1, 1),
    "action of agent 0 in step 1 is 2, which was not": assigned(1, ACTION, 2),
    "action of agent 0 in step 1 is 0.5, which was not": assigned(1, ACTION, 0.5),
    "action of agent 0 in step 1 is -1, which was not": assigned(1, ACTION, -1),
    "action of agent 0 in step 1 is 3e.38, which was not": assigned(1, ACTION, 3e38),
    "action of agent 0 in step 2 is 0, which was taken though": assigned(2, ACTION, 0),
    "action is not 0 in the last row": assigned(4, ACTION, 1),
}


def test_an_episode_that_was_played_is_accepted() -> None:
    assert judged(np.concatenate([played(), played()]), [4, 4], LAYOUT)


@pytest.mark.parametrize("named", WRONG)
def test_what_cannot_have_been_played_is_named(named: str) -> None:
    rows = played()
    WRONG[named](rows)
    with pytest.raises(InvalidContribution, match=named.replace("+", r"\+")):
        judged(rows, [4], LAYOUT)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named_by_its_place(value: float) -> None:
    rows = played()
    rows[3, 1] = value
    with pytest.raises(InvalidContribution, match=r"rows\[3\]\[1\] is -?(nan|inf)"):
        judged(rows, [4], LAYOUT)
