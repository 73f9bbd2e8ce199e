"""Collection of whole episodes with the current policies.

A collection is a pure function of the seed, the parameters, the iteration and the number of steps
played before, which the exploration schedule depends on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms.roles import Annealed, Player
from fullrank.common.errors import CheckpointUnusable
from fullrank.common.seeding import derive
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import Environment, Step
from fullrank.environments.capabilities import (
    Contested,
    Stated,
    chosen_actions,
    pauses,
)
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout
from fullrank.training.episodes import Episodes, episode_statistics, team_returns, team_reward
from fullrank.training.reward_scale import AS_PAID, RewardScale
from fullrank.training.rollouts import Collected, untold


class EpisodeRollout:
    """Collect one whole episode from every copy.

    Episode k of copy c starts from the seed derived from (seed, "episode", c, k). A copy whose
    episode is over waits until the last copy is done, in an environment that is ``Paused``;
    elsewhere it idles in an episode of its own.

    Args:
        environment: Environment with any number of copies.
        player: Selects actions; its exploration is annealed by the steps played, if it is
            ``Annealed``.
        layout: Layout of a row.
        seed: Fixes the initial states.
        scale: Standardises the rewards of rows, but not the returns.
    """

    def __init__(
        self,
        environment: Environment,
        player: Player,
        layout: EpisodeLayout,
        *,
        seed: int,
        scale: RewardScale = AS_PAID,
    ) -> None:
        self._environment, self._player, self._layout = environment, player, layout
        self._seed, self._scale = seed, scale
        self._rounds = self._env_steps = 0

    def collect(self, steps: int, iteration: int) -> Collected:
        """Play one whole episode in every copy; ``steps`` is ignored."""
        return self.play(1, iteration=iteration)

    def play(self, rows: int, *, iteration: int, told: Callable[[int], None] = untold) -> Collected:
        """Play rounds of one episode of every copy until they have ``rows`` rows.

        Args:
            rows: Least number of rows.
            iteration: Keys the exploration (-1 for the warm-up).
            told: Takes the number of rows so far, after every round.
        """
        statistics: dict[str, float] = {}
        if isinstance(self._player, Annealed):
            statistics["epsilon"] = self._player.anneal(self._env_steps)
        played: list[EpisodeRound] = []
        steps = collected = 0
        while not played or collected < rows:
            round_ = EpisodeRound(self._environment, self._player, self._layout, self._scale)
            seeds = [
                derive(self._seed, "episode", copy, self._rounds)
                for copy in range(self._environment.copies)
            ]
            steps = round_.play(seeds, iteration=iteration, first_step=steps)
            played.append(round_)
            self._rounds += 1
            self._env_steps += round_.env_steps
            told(collected := collected + len(round_.rows))
        returns, sides = team_returns(
            self._environment, np.concatenate([round_.earned for round_ in played])
        )
        wins = np.concatenate([round_.won for round_ in played])
        contested = isinstance(self._environment, Contested)
        lengths = np.concatenate([round_.lengths for round_ in played])
        statistics |= episode_statistics(returns, lengths, wins if contested else None)
        statistics["env_steps"] = float(self._env_steps)
        return Collected(
            np.concatenate([round_.rows for round_ in played]),
            returns,
            sides,
            wins if contested else None,
            statistics,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of rounds and of environment steps played."""
        return {"played": np.array([self._rounds, self._env_steps], np.int64)}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state is missing.
        """
        played = state.get("played")
        if played is None or played.shape != (2,):
            raise CheckpointUnusable(
                "the checkpoint does not count episodes; resume with the algorithm that wrote it"
            )
        self._rounds, self._env_steps = map(int, played)


class WholeEpisodes(ABC):
    """One whole episode of every copy, of which subclasses keep the rows.

    Attributes:
        rows: Packed rows, copy by copy.
        earned: Returns of all agents in each copy, shape (E, M).
        won: True for copies that won, shape (E,).
        lengths: Steps of each episode, shape (E,).
        steps: Steps taken so far.
    """

    def __init__(self, environment: Environment, player: Player, *, row_size: int) -> None:
        copies = environment.copies
        self._environment, self._player = environment, player
        self._episodes = Episodes(environment)
        self.lengths = np.zeros(copies, np.int64)
        self.rows: FloatArray = np.empty((0, row_size), np.float32)
        self.earned = np.zeros((copies, len(environment.agents)))
        self.won = np.zeros(copies, bool)
        self.steps = 0

    @property
    def env_steps(self) -> int:
        """Return the number of steps of all episodes together."""
        return int(self.lengths.sum())

    def play(self, seeds: Sequence[int], *, iteration: int, first_step: int) -> int:
        """Play from the given seeds; returns the number of the next exploration step."""
        memory = self._player.memory(self._environment.copies)
        while not self.over:
            begun = self.begin(seeds)
            for array in memory:
                array[begun] = 0.0
            observation, alive, available = self.offer
            action, memory = self._player.act(
                observation,
                memory,
                iteration=iteration,
                step=first_step + self.steps,
                alive=alive,
                available=available,
            )
            self.advance(action, alive, available)
        return first_step + self.steps

    @property
    def over(self) -> bool:
        """Return whether every copy has played its episode."""
        return bool(self.lengths.all())

    @property
    def offer(self) -> tuple[FloatArray, BoolArray, BoolArray | None]:
        """Return the inputs of acting: observations, living agents, available actions."""
        episodes = self._episodes
        return episodes.observation, episodes.alive, episodes.available()

    def begin(self, seeds: Sequence[int]) -> IntArray:
        """Begin episodes where none is played, from the copies' seeds; returns the copies."""
        waiting = self._episodes.waiting()
        if pauses(self._environment):
            waiting = waiting[self.lengths[waiting] == 0]
        if waiting.size:
            self._episodes.begin(waiting, [seeds[copy] for copy in waiting])
            self._begun(waiting)
        return waiting

    def advance(self, action: FloatArray, alive: BoolArray, available: BoolArray | None) -> None:
        """Step all copies and keep the step."""
        outcome = self._step(action, alive, available)
        self.steps += 1
        self._finish(outcome)
        if self.over:
            self.rows = self._packed()

    def _finish(self, outcome: Step) -> None:
        """Keep length, returns and win of the copies whose one episode has ended."""
        finished = np.flatnonzero(outcome.ended & (self.lengths == 0))
        self.lengths[finished] = self.steps
        self.earned[finished] = self._episodes.earned[finished]
        self.won[outcome.ended] |= self._episodes.won() & np.isin(
            np.flatnonzero(outcome.ended), finished
        )

    @abstractmethod
    def _begun(self, copies: IntArray) -> None:
        """Take note that these copies have begun an episode."""

    @abstractmethod
    def _step(self, action: FloatArray, alive: BoolArray, available: BoolArray | None) -> Step:
        """Step all copies and keep the step; copies that have finished are not counted."""

    @abstractmethod
    def _packed(self) -> FloatArray:
        """Arrange the rows copy by copy."""


class EpisodeRound(WholeEpisodes):
    """One whole episode of every copy, as rows of episodes.

    Args:
        environment: Environment; all copies are reset.
        player: Selects actions.
        layout: Layout of a row.
        scale: Standardises the rewards of rows.
    """

    def __init__(
        self, environment: Environment, player: Player, layout: EpisodeLayout, scale: RewardScale
    ) -> None:
        super().__init__(environment, player, row_size=layout.row_size)
        self._layout, self._scale = layout, scale
        self._last = np.zeros((environment.copies, layout.row_size), np.float32)
        self._kept = [np.zeros((environment.copies, layout.row_size), np.float32)]

    def _begun(self, copies: IntArray) -> None:
        self._kept[-1][copies] = self._seen(self._episodes.alive)[copies]

    def _seen(self, alive: BoolArray) -> FloatArray:
        """Pack the current observations of all copies, shape (E, row_size); the rest is zero."""
        layout, episodes = self._layout, self._episodes
        rows = np.zeros((self._environment.copies, layout.row_size), np.float32)
        rows[:, layout.observation] = episodes.observation
        if isinstance(self._environment, Stated):
            rows[:, layout.state] = self._environment.state()
        available = episodes.available()
        if available is None:
            available = np.repeat(alive, layout.action_sizes, axis=1)
        rows[:, layout.available] = available
        return rows

    def _step(self, action: FloatArray, alive: BoolArray, available: BoolArray | None) -> Step:
        """Step all copies; complete the last rows and begin the next ones."""
        layout, agents = self._layout, self._environment.agents
        rows, offered = self._kept[-1], self._kept[-1][:, layout.available] > 0
        # An agent that does not act is forced into its only action, or has none.
        forced = offered & np.repeat(~alive, layout.action_sizes, axis=1)
        chosen = chosen_actions(agents, action + forced, available=offered, alive=alive)
        acts = np.logical_or.reduceat(offered, np.cumsum((0, *layout.action_sizes[:-1])), axis=1)
        rows[:, layout.action] = np.where(acts, chosen, NO_ACTION)
        outcome = self._episodes.advance(action)
        reward = team_reward(self._environment, outcome.reward)
        with np.errstate(over="ignore"):  # rows that are not finite are refused by name
            rows[:, layout.reward] = (reward - self._scale.mean) / self._scale.deviation
        left = alive & ~outcome.terminated
        rows[:, layout.terminated] = outcome.ended & ~left.any(axis=1)
        self._kept.append(self._seen(np.where(outcome.ended[:, None], left, outcome.alive)))
        return outcome

    def _finish(self, outcome: Step) -> None:
        finished = np.flatnonzero(outcome.ended & (self.lengths == 0))
        self._last[finished] = self._kept[-1][finished]
        self._last[finished, self._layout.length] = self.steps
        super()._finish(outcome)

    def _packed(self) -> FloatArray:
        """Arrange the rows copy by copy, each copy's last row at the end."""
        every = np.stack(self._kept, axis=1)
        parts = [
            part
            for copy, length in enumerate(self.lengths)
            for part in (every[copy, :length], self._last[copy, None])
        ]
        return np.concatenate(parts)
