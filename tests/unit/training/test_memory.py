"""The memory of a player lasts for an episode, in collection and in evaluation."""

from typing import Any, cast

import numpy as np
from tests.unit.training.worlds import LAYOUT, SEED, Countdown, rollout

from fullrank.algorithms import Player
from fullrank.algorithms.roles import Memory
from fullrank.common.types import BoolArray, FloatArray
from fullrank.training.evaluation import Greedy, evaluate


class Counting:
    """An actor that counts the steps of its episode and acts by the count."""

    def memory(self, copies: int) -> Memory:
        return (np.zeros((copies, 1), np.float32),)

    def act(
        self, observation: FloatArray, memory: Memory, *, alive: BoolArray, **_: Any
    ) -> tuple[FloatArray, Memory]:
        (steps,) = memory
        return alive * steps, (steps + 1,)

    def act_greedily(
        self, observation: FloatArray, memory: Memory, **_: Any
    ) -> tuple[FloatArray, Memory]:
        (steps,) = memory
        return np.repeat(steps, 2, axis=1), (steps + 1,)


def test_memory_lasts_for_an_episode_and_no_longer() -> None:
    rows = rollout(Countdown(2), Counting()).collect(9, iteration=0).rows
    seen = rows[:, LAYOUT.action].max(axis=1).reshape(9, 2)
    began = np.where(np.diff(seen, axis=0, prepend=0.0) <= 0, 0.0, seen)
    assert (seen[0] == 0).all()
    assert (began[began > 0] <= 4).all()
    assert ((np.diff(seen, axis=0) == 1) | (seen[1:] == 0)).all()
    assert (seen[1:] == 0).any()


def test_memory_goes_on_where_a_resumed_run_goes_on() -> None:
    going, stopped, resumed = (rollout(Countdown(2), Counting()) for _ in range(3))
    whole = [going.collect(1, iteration=step).rows for step in range(6)]
    for step in range(3):
        stopped.collect(1, iteration=step)
    resumed.load(stopped.mark()())
    for step in range(3, 6):
        np.testing.assert_array_equal(resumed.collect(1, iteration=step).rows, whole[step])


def test_an_evaluation_begins_every_episode_without_memory() -> None:
    alone, together = (
        evaluate(Countdown(copies), Greedy(cast(Player, Counting())), 6, SEED) for copies in (1, 3)
    )
    np.testing.assert_array_equal(alone.returns, together.returns)
    assert alone.returns.any()
