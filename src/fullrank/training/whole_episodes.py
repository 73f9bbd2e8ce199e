"""Whole episodes of the copies of one block, stepped together or each as it is ready.

Their rows follow from the seeds, the parameters, the iteration and the number of the first step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait

import numpy as np

from fullrank.algorithms.roles import Player
from fullrank.common.errors import NoEnd
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import Environment, Step
from fullrank.environments.capabilities import Stated, chosen_actions, pauses, shares_reward
from fullrank.environments.processes import EnvironmentProcess
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout
from fullrank.replay.layout import Layout
from fullrank.training.episodes import Episodes, Outcomes, longest_of, team_reward
from fullrank.training.evaluation import RewardScale


class WholeEpisodes(ABC):
    """One whole episode of every copy, of which subclasses keep the rows.

    A copy whose episode is over waits until the last copy is done, in an environment that is
    ``Paused``; elsewhere it idles in an episode of its own.

    Attributes:
        rows: Packed rows, copy by copy.
        outcomes: Those of the copies' episodes.
        steps: Steps taken so far.
    """

    def __init__(self, environment: Environment, player: Player, *, row_size: int) -> None:
        copies = environment.copies
        self._environment, self._player = environment, player
        self._episodes, self._longest = Episodes(environment), longest_of(environment)
        self._pauses = pauses(environment)
        self.rows: FloatArray = np.empty((0, row_size), np.float32)
        self.outcomes = Outcomes(
            earned=np.zeros((copies, len(environment.agents))),
            won=np.zeros(copies, bool),
            lengths=np.zeros(copies, np.int64),
        )
        self.steps = 0

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
        return bool(self.outcomes.lengths.all())

    @property
    def offer(self) -> tuple[FloatArray, BoolArray, BoolArray | None]:
        """Return the inputs of acting: observations, living agents, available actions."""
        episodes = self._episodes
        return episodes.observation, episodes.alive, episodes.available()

    def begin(self, seeds: Sequence[int]) -> IntArray:
        """Begin episodes where none is played, from the copies' seeds; returns the copies."""
        waiting = self._episodes.waiting()
        if self._pauses:
            waiting = waiting[self.outcomes.lengths[waiting] == 0]
        if waiting.size:
            self._episodes.begin(waiting, [seeds[copy] for copy in waiting])
            self._begun(waiting)
        return waiting

    def advance(self, action: FloatArray, alive: BoolArray, available: BoolArray | None) -> None:
        """Step all copies and keep the step.

        Raises:
            NoEnd: A copy has not ended its episode after ``longest_of(environment)`` steps.
        """
        outcome = self._step(action, alive, available)
        self.steps += 1
        if outcome.ended.any():
            self._finish(outcome)
        if self.over:
            self.rows = self._packed()
        elif self.steps >= self._longest:
            raise NoEnd(
                f"an episode that is learnt from as a whole has had {self.steps:,} steps and has "
                "not ended; give the environment a time limit"
            )

    def _finish(self, outcome: Step) -> None:
        """Keep length, returns and win of the copies whose one episode has ended."""
        earned, won, lengths = self.outcomes
        finished = np.flatnonzero(outcome.ended & (lengths == 0))
        lengths[finished] = self.steps
        earned[finished] = self._episodes.earned[finished]
        won[outcome.ended] |= self._episodes.won() & np.isin(
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
        self._vectors = np.array(layout.vectors) > 0
        self._least = np.array([len(agent.action.choices) for agent in environment.agents])
        self._last = np.zeros((environment.copies, layout.row_size), np.float32)
        self._kept = [np.zeros((environment.copies, layout.row_size), np.float32)]

    def _begun(self, copies: IntArray) -> None:
        self._kept[-1][copies] = self._seen(self._episodes.alive, self.steps)[copies]

    def _seen(self, alive: BoolArray, steps: int) -> FloatArray:
        """Pack what all copies show after so many steps, shape (E, row_size); the rest is zero."""
        layout, episodes = self._layout, self._episodes
        rows = np.zeros((self._environment.copies, layout.row_size), np.float32)
        rows[:, layout.observation] = layout.packed(episodes.observation)
        if layout.state_size and isinstance(self._environment, Stated):
            rows[:, layout.state][:, : layout.state_size] = self._environment.state()
        if layout.clock:
            rows[:, layout.state.stop - 1] = steps / layout.clock
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
        starts = np.cumsum((0, *layout.action_sizes[:-1]))
        acts = np.logical_or.reduceat(offered, starts, axis=1)
        if layout.vectors:
            chooses = alive & (np.add.reduceat(offered, starts, axis=1, dtype=int) > self._least)
            acts[:, self._vectors], chosen[:, self._vectors] = chooses[:, self._vectors], 0
            rows[:, layout.entries] = action[:, np.repeat(self._vectors, layout.action_sizes)]
        rows[:, layout.action] = np.where(acts, chosen, NO_ACTION)
        outcome = self._episodes.advance(action)
        reward = team_reward(self._environment, outcome.reward)
        with np.errstate(over="ignore"):  # rows that are not finite are refused by name
            rows[:, layout.reward] = (reward - self._scale.mean) / self._scale.deviation
            if layout.own_rewards:
                rows[:, layout.rewards] = self._scale.own(outcome.reward)
        left = alive & ~outcome.terminated
        rows[:, layout.terminated] = outcome.ended & ~left.any(axis=1)
        if shares_reward(self._environment):
            rows[:, layout.ends], rows[:, layout.earns] = rows[:, layout.terminated, None], 1.0
        elif layout.own_rewards:
            rows[:, layout.ends], rows[:, layout.earns] = alive & outcome.terminated, alive
        seeing = np.where(outcome.ended[:, None], left, outcome.alive)
        self._kept.append(self._seen(seeing, self.steps + 1))
        return outcome

    def _finish(self, outcome: Step) -> None:
        finished = np.flatnonzero(outcome.ended & (self.outcomes.lengths == 0))
        self._last[finished] = self._kept[-1][finished]
        self._last[finished, self._layout.length] = self.steps
        super()._finish(outcome)

    def _packed(self) -> FloatArray:
        """Arrange the rows copy by copy, each copy's last row at the end."""
        every = np.stack(self._kept, axis=1)
        parts = [
            part
            for copy, length in enumerate(self.outcomes.lengths)
            for part in (every[copy, :length], self._last[copy, None])
        ]
        return np.concatenate(parts)


class TransitionRound(WholeEpisodes):
    """One whole episode of every copy, as packed transitions.

    Args:
        environment: Environment; all copies are reset.
        player: Selects actions.
        layout: Layout of a transition.
    """

    def __init__(self, environment: Environment, player: Player, layout: Layout) -> None:
        super().__init__(environment, player, row_size=layout.row_size)
        self._layout = layout
        self._kept: list[FloatArray] = []

    def _begun(self, copies: IntArray) -> None:
        """Do nothing: a transition holds both of its observations."""

    def _step(self, action: FloatArray, alive: BoolArray, available: BoolArray | None) -> Step:
        rows = np.empty((self._environment.copies, self._layout.row_size), np.float32)
        self._kept.append(rows)
        return self._episodes.advance_packed(
            action, self._layout, alive=alive, available=available, out=rows
        )

    def _packed(self) -> FloatArray:
        every = np.stack(self._kept, axis=1)
        return np.concatenate(
            [every[copy, :length] for copy, length in enumerate(self.outcomes.lengths)]
        )


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
    def outcomes(self) -> Outcomes:
        """Return the outcomes of the copies' episodes."""
        return Outcomes.joined([episode.outcomes for episode in self._episodes])
