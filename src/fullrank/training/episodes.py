"""Episodes in the copies of an environment, and their returns."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import EnvironmentFailed
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import Environment, Step
from fullrank.environments.capabilities import (
    Contested,
    Masked,
    next_available_of,
    shares_reward,
    step_limit_of,
)
from fullrank.replay.layout import Layout

LONGEST = 30_000
"""Steps after which an episode that has not ended is taken to have no end, unless the environment
states a longer limit; the longest ones of published tasks, of Atari games, have 27,000."""


def longest_of(environment: Environment) -> int:
    """Return the number of steps after which an episode is taken to have no end."""
    return max(LONGEST, step_limit_of(environment))


class Episodes:
    """Episodes in E copies; initially every copy awaits a reset.

    Attributes:
        observation: Current joint observations, shape (E, sum of observation sizes).
        alive: Agents that act, shape (E, M).
        ended: Copies whose episode ended in the last step, shape (E,).
        earned: Sums of the rewards since the episodes began, shape (E, M).
    """

    def __init__(self, environment: Environment) -> None:
        shape = (environment.copies, len(environment.agents))
        self._environment = environment
        self._masked = environment if isinstance(environment, Masked) else None
        self._contested = environment if isinstance(environment, Contested) else None
        self.earned: Array = np.zeros(shape)
        self.alive = np.ones(shape, dtype=bool)
        self.ended = np.ones(environment.copies, dtype=bool)
        size = sum(agent.observation_size for agent in environment.agents)
        self.observation: FloatArray = np.zeros((environment.copies, size), dtype=np.float32)

    def waiting(self) -> IntArray:
        """Return the copies whose episode is over, ascending."""
        return np.flatnonzero(self.ended)

    def available(self) -> BoolArray | None:
        """Return the available actions, shape (E, sum of action sizes); None: all are."""
        return None if self._masked is None else self._masked.available()

    def begin(self, copies: IntArray, seeds: Sequence[int]) -> None:
        """Reset the given copies, which start new episodes.

        Raises:
            EnvironmentFailed: The environment returned an array of another shape.
        """
        observation = self._environment.reset(seeds, copies.tolist())
        _check_shape("observation", observation, self.observation)
        self.observation = observation
        self.earned[copies] = 0.0
        self.alive[copies] = True
        self.ended[copies] = False

    def advance(self, action: FloatArray) -> Step:
        """Step all copies and add up their rewards.

        Raises:
            EnvironmentFailed: The environment returned an array of another shape.
        """
        step = self._environment.step(action)
        _check_shape("observation", step.observation, self.observation)
        _check_shape("reward", step.reward, self.earned)
        _check_shape("terminated", step.terminated, self.earned)
        _check_shape("alive", step.alive, self.earned)
        _check_shape("ended", step.ended, self.ended)
        self.earned += step.reward
        self.observation, self.alive, self.ended = (
            step.observation,
            step.alive.copy(),
            step.ended.copy(),
        )
        return step

    def advance_packed(
        self,
        action: FloatArray,
        layout: Layout,
        *,
        alive: BoolArray,
        available: BoolArray | None,
        out: FloatArray,
    ) -> Step:
        """Step all copies and pack their transitions.

        Args:
            action: Joint actions, shape (E, sum of action sizes).
            layout: Layout of a transition.
            alive: Agents that acted, shape (E, M).
            available: The actions that were available, of the shape of the actions; None: all.
            out: Receives the packed transitions, shape (E, row_size).
        """
        observation = self.observation
        step = self.advance(action)
        comes_back = ~alive & step.alive & ~step.ended[:, None]
        layout.pack(
            observation=observation,
            action=action,
            reward=step.reward,
            next_observation=step.observation,
            terminated=step.terminated | comes_back,
            alive=alive,
            available=available,
            next_available=next_available_of(self._environment) if layout.masked else None,
            out=out,
        )
        return step

    def won(self) -> BoolArray:
        """Return which of the episodes that ended in the last step were won, (ended copies,)."""
        if self._contested is None:
            return np.zeros(np.count_nonzero(self.ended), dtype=bool)
        return self._contested.won()[self.ended]


def _check_shape(name: str, returned: NDArray[Any], expected: NDArray[Any]) -> None:
    """Refuse an array of another shape, which might broadcast unnoticed."""
    if returned.shape != expected.shape:
        raise EnvironmentFailed(
            f"the environment returned {name} of shape {returned.shape}, expected {expected.shape}"
        )


def team_reward(environment: Environment, reward: Array) -> Array:
    """Return the team's reward: that of one agent where all are paid the same, else the sum."""
    return reward[:, 0] if shares_reward(environment) else reward.sum(axis=1)


def team_returns(environment: Environment, by_agent: Array) -> tuple[Array, dict[str, Array]]:
    """Return the returns of all agents together and of each side, in order of first appearance.

    They are sums over the agents; a reward that all agents share counts once.

    Args:
        environment: Environment of the episodes.
        by_agent: Returns of the agents, shape (episodes, M).
    """
    counted = slice(1) if shares_reward(environment) else slice(None)
    sides = [agent.side for agent in environment.agents]
    members = {side: [other == side for other in sides] for side in dict.fromkeys(sides)}
    return by_agent[:, counted].sum(axis=1), {
        side: by_agent[:, member][:, counted].sum(axis=1) for side, member in members.items()
    }


class Outcomes(NamedTuple):
    """Outcomes of whole episodes, in order."""

    earned: Array
    """Returns of all agents, shape (episodes, M)."""
    won: BoolArray
    """True for episodes that were won, shape (episodes,)."""
    lengths: IntArray
    """Steps of each episode, shape (episodes,)."""

    @classmethod
    def none(cls, agents: int) -> "Outcomes":
        """Return those of no episode."""
        return cls(np.zeros((0, agents)), np.zeros(0, bool), np.zeros(0, np.int64))

    @classmethod
    def joined(cls, parts: Sequence["Outcomes"]) -> "Outcomes":
        """Return the outcomes of all parts, of which there is at least one."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    @property
    def env_steps(self) -> int:
        """Return the number of steps of all episodes together."""
        return int(self.lengths.sum())


def episode_statistics(
    returns: Array, lengths: IntArray, won: BoolArray | None
) -> dict[str, float]:
    """Return the statistics of whole episodes that PyMARL's runners log, under its names.

    Args:
        returns: Return of the team in each episode, shape (episodes,).
        lengths: Steps of each episode, of the same shape.
        won: True for episodes that were won; None if the environment has no wins.
    """
    statistics = {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "ep_length_mean": float(lengths.mean()),
    }
    return statistics if won is None else {**statistics, "battle_won_mean": float(won.mean())}
