"""Small environments and players whose transitions are known."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from fullrank.algorithms import Player
from fullrank.algorithms.roles import Memory
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import AgentSpec, Continuous, Step
from fullrank.replay.layout import Layout
from fullrank.training.rollouts import Rollout

SEED = 5
LAYOUT = Layout(observation_sizes=(2, 2), action_sizes=(1, 1))


class Countdown:
    """Episodes of 2 to 4 steps, by seed; both agents see (seed % 1000, step).

    Red earns 1 a step and terminates after its first one, blue earns its action.
    """

    def __init__(self, copies: int) -> None:
        box = Continuous((-9.0,), (9.0,))
        self.agents: tuple[AgentSpec, ...] = (
            AgentSpec(name="red_0", observation_size=2, action=box, side="red"),
            AgentSpec(name="blue_0", observation_size=2, action=box, side="blue"),
        )
        self.copies = copies
        self.seeds: list[tuple[int, int]] = []
        self.closed = False
        self._seed, self._step = np.zeros(copies, dtype=np.int64), np.zeros(copies, dtype=np.int64)

    def _observation(self) -> FloatArray:
        alive = np.stack([self._step < 1, self._step >= 0], axis=1)
        seen = np.stack([self._seed % 1000, self._step], axis=1)[:, None] * alive[..., None]
        return seen.reshape(self.copies, 4).astype(np.float32)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        self.seeds += zip(copies, seeds, strict=True)
        self._seed[copies], self._step[copies] = seeds, 0
        return self._observation()

    def step(self, action: FloatArray) -> Step:
        self._step += 1
        first = self._step == 1
        return Step(
            observation=self._observation(),
            reward=np.stack([first * 1.0, action[:, 1]], axis=1),
            terminated=np.stack([first, np.zeros_like(first)], axis=1),
            alive=np.stack([np.zeros_like(first), ~np.zeros_like(first)], axis=1),
            ended=self._step >= length(self._seed),
        )

    def close(self) -> None:
        self.closed = True


class Endless(Countdown):
    """Episodes do not end."""

    def step(self, action: FloatArray) -> Step:
        return super().step(action)._replace(ended=np.zeros(self.copies, dtype=bool))


def length(seed: Any) -> Any:
    return 2 + seed % 3


class StepCounter:
    """An algorithm that acts only: blue's action is 10 * iteration + step."""

    def memory(self, copies: int) -> Memory:
        return ()

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        return np.where(alive, np.float32(10 * iteration + step), np.float32(0)), memory


def rollout(environment: Countdown, algorithm: object | None = None) -> Rollout:
    return Rollout(environment, cast(Player, algorithm or StepCounter()), LAYOUT, seed=SEED)


class Ones:
    """Blue always acts 1, so that its return is the length of the episode."""

    def memory(self, copies: int) -> Memory:
        return ()

    def act(
        self, observation: FloatArray, memory: Memory, *, alive: BoolArray, **_: Any
    ) -> tuple[FloatArray, Memory]:
        return alive.astype(np.float32), memory


def ones(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
    return np.ones((len(observation), 2), dtype=np.float32)
