"""Whole episodes of copies in processes of their own: a copy that is ready acts without waiting."""

from collections.abc import Callable, Sequence
from multiprocessing.connection import wait

import numpy as np

from fullrank.algorithms.roles import Player
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.processes import EnvironmentProcess
from fullrank.training.episode_rollouts import WholeEpisodes


class ReadyFirst:
    """One whole episode of every copy, with the bits of copies that are stepped together.

    Copies that are ready at the same step act in one call. It takes the arrays of all copies, so
    that the shape of every product and the draws of a copy are those of that step; only the actions
    of the ready ones are used.

    Args:
        processes: One for each copy.
        player: Selects actions.
        whole: Keeps the rows of one copy's episode.

    Attributes:
        steps: Steps that the copy had taken whose answer came last.
    """

    def __init__(
        self,
        processes: Sequence[EnvironmentProcess],
        player: Player,
        whole: Callable[[EnvironmentProcess], WholeEpisodes],
    ) -> None:
        self._processes, self._player = processes, player
        self._episodes = [whole(process) for process in processes]
        agents, copies = processes[0].agents, len(processes)
        seen, acts = (
            sum(agent.observation_size for agent in agents),
            sum(agent.action.size for agent in agents),
        )
        self._observation: FloatArray = np.zeros((copies, seen), np.float32)
        self._available = np.ones((copies, acts), bool)
        self._alive = np.zeros((copies, len(agents)), bool)
        self._action: FloatArray = np.zeros((copies, acts), np.float32)
        self.steps = 0

    def play(self, seeds: Sequence[int], *, copies: range, iteration: int, first_step: int) -> None:
        """Play from the given seeds.

        Args:
            seeds: One for each copy.
            copies: Numbers of the copies, for messages.
            iteration: Keys the exploration.
            first_step: Number of the first exploration step.

        Raises:
            EnvironmentFailed: An environment raised, or its process has ended.
        """
        memory = self._player.memory(len(seeds))
        for process, seed, copy in zip(self._processes, seeds, copies, strict=True):
            process.ask_reset(seed, copy=copy)
        asked = {process.connection: copy for copy, process in enumerate(self._processes)}
        while asked:
            ready = [asked.pop(connection) for connection in wait(asked)]  # type: ignore[call-overload]
            by_step: dict[int, list[int]] = {}
            for copy in sorted(ready, key=lambda copy: (self._episodes[copy].steps, copy)):
                self._take(copy, seeds[copy])
                if not self._episodes[copy].over:
                    by_step.setdefault(self._episodes[copy].steps, []).append(copy)
            for step, group in by_step.items():
                action, after = self._player.act(
                    self._observation,
                    memory,
                    iteration=iteration,
                    step=first_step + step,
                    alive=self._alive,
                    available=self._available,
                )
                for kept, new in zip(memory, after, strict=True):
                    kept[group] = new[group]
                self._action[group] = action[group]
                for copy in group:
                    self._processes[copy].ask_step(action[copy, None])
                    asked[self._processes[copy].connection] = copy

    def _take(self, copy: int, seed: int) -> None:
        """Take the answer of a copy that is ready."""
        episode = self._episodes[copy]
        self.steps = episode.steps
        if self._alive[copy].any() or episode.steps:
            episode.advance(
                self._action[copy, None], self._alive[copy, None], self._available[copy, None]
            )
        else:
            episode.begin([seed])
        observation, alive, available = episode.offer
        self._observation[copy], self._alive[copy] = observation[0], alive[0]
        self._available[copy] = available

    @property
    def rows(self) -> FloatArray:
        """Return the packed rows, copy by copy."""
        return np.concatenate([episode.rows for episode in self._episodes])

    @property
    def earned(self) -> Array:
        """Return the returns of all agents in each copy, shape (E, M)."""
        return np.concatenate([episode.earned for episode in self._episodes])

    @property
    def won(self) -> BoolArray:
        """Return True for copies that won, shape (E,)."""
        return np.concatenate([episode.won for episode in self._episodes])

    @property
    def lengths(self) -> IntArray:
        """Return the steps of each episode, shape (E,)."""
        return np.concatenate([episode.lengths for episode in self._episodes])
