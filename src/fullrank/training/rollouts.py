"""Collection of transitions with the current policies.

A collection is a pure function of the seed, the parameters and the iteration, so that the
controller and the one-process driver collect the same transitions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms.roles import Player
from fullrank.common.errors import CheckpointUnusable, EnvironmentFailed
from fullrank.common.seeding import derive
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import Environment
from fullrank.environments.capabilities import Contested, Uploadable, permitted_actions
from fullrank.replay.layout import Layout
from fullrank.replay.staging import AcceptedBlock
from fullrank.training.episodes import Episodes, longest_of, team_returns

ENV_STEPS = "env_steps"
"""Statistic of an iteration: environment steps until its end, without those of the warm-up; where
collectors play freely, those that it could draw from, or evicted before."""
STAGGER = -2
"""Iteration number that keys the exploration before the first iteration of staggered episodes."""


def untold(rows: int) -> None:
    """Tell no reader how many rows are collected."""


NEAR = 1e-5
"""Largest difference of observations where one device goes on from a checkpoint of another."""


class Collected(NamedTuple):
    """One collection: transitions ordered by step, and by copy within a step."""

    rows: FloatArray
    """Packed transitions, shape (steps * E, row_size), contiguous."""
    returns: Array
    """Return of each finished episode, summed over all agents, in order of ending, shape (n,)."""
    side_returns: dict[str, Array]
    """Returns of the same episodes, summed over the agents of each side."""
    won: BoolArray | None = None
    """True for those of the same episodes that were won; None if the environment has no wins."""
    statistics: Mapping[str, float] = MappingProxyType({})
    """Statistics of whole episodes, by PyMARL's names."""
    blocks: Sequence[AcceptedBlock] | None = None
    """Blocks that may be drawn first by this iteration; None where collection is not free."""
    play_s: float | None = None
    """Time of playing, seconds, where it was measured."""
    steps: int = 0
    """Environment steps of the collection."""

    @property
    def without_episodes(self) -> "Collected":
        """The same collection for further updates over it: its episodes are recorded once."""
        sides = {side: returns[:0] for side, returns in self.side_returns.items()}
        won = None if self.won is None else self.won[:0]
        return self._replace(returns=self.returns[:0], side_returns=sides, won=won)

    @property
    def win_rate(self) -> float | None:
        """Return the share of episodes that were won; None without wins or finished episodes."""
        return None if self.won is None or not self.won.size else float(self.won.mean())


class Rollout:
    """Collect transitions with the current policies; episodes continue from call to call.

    Episode k of copy c starts from the seed derived from (seed, "episode", c, k). One that has not
    ended after ``longest_of(environment)`` steps is cut off, as by a time limit, so that a mark has
    a bounded number of actions; its return is not reported.

    Args:
        environment: Environment of the episodes.
        player: Selects the actions.
        layout: Layout of one transition.
        seed: Fixes the initial states.
        stagger: Length of an episode over which the starts of the copies are spread, so that about
            equally many episodes end in every step; 0 starts all copies together.
    """

    def __init__(
        self,
        environment: Environment,
        player: Player,
        layout: Layout,
        *,
        seed: int,
        stagger: int = 0,
    ) -> None:
        self._environment, self._player, self._layout = environment, player, layout
        self._seed, self._stagger = seed, stagger
        self._finished = np.zeros(environment.copies, dtype=np.int64)
        self._steps = np.zeros(environment.copies, dtype=np.int64)
        self._actions: list[FloatArray] = []
        self._episodes = Episodes(environment)
        self._near = NEAR if isinstance(environment, Uploadable) else 0.0
        self._longest = longest_of(environment)
        self._contested = isinstance(environment, Contested)
        self._memory = player.memory(environment.copies)

    def collect(
        self, steps: int, iteration: int, *, told: Callable[[int], None] = untold
    ) -> Collected:
        """Step every copy ``steps`` times and pack the transitions.

        Args:
            steps: Steps of each copy.
            iteration: Keys the exploration (-1 for the warm-up).
            told: Takes the number of rows so far, after every step.
        """
        self._spread()
        copies, episodes = self._environment.copies, self._episodes
        rows = np.empty((steps, copies, self._layout.row_size), dtype=np.float32)
        earned, won = [], []
        for step in range(steps):
            self._begin()
            alive, available = episodes.alive, episodes.available()
            action, self._memory = self._player.act(
                episodes.observation,
                self._memory,
                iteration=iteration,
                step=step,
                alive=alive,
                available=available,
            )
            episodes.advance_packed(
                action, self._layout, alive=alive, available=available, out=rows[step]
            )
            earned.append(episodes.earned[episodes.ended])
            won.append(episodes.won())
            self._count()
            self._keep([action])
            told((step + 1) * copies)
        returns, sides = team_returns(self._environment, np.concatenate(earned))
        wins = np.concatenate(won) if self._contested else None
        return Collected(rows.reshape(steps * copies, -1), returns, sides, wins)

    def _spread(self) -> None:
        """Begin a staggered run with copy c in step c * stagger // E of its first episode.

        The transitions of these steps are not collected.
        """
        if not self._stagger or self._actions or self._finished.any():
            return
        copies = self._environment.copies
        self._steps = np.arange(copies, dtype=np.int64) * self._stagger // copies
        for step in range(steps := int(self._steps.max())):
            self._start(np.flatnonzero((self._steps == steps - step) | self._episodes.ended))
            action, self._memory = self._player.act(
                self._episodes.observation,
                self._memory,
                iteration=STAGGER,
                step=step,
                alive=self._episodes.alive,
                available=self._episodes.available(),
            )
            self._episodes.advance(action)
            self._actions.append(action)
        self._episodes.ended[:] = self._steps == 0

    def _count(self) -> None:
        """Count a step and the episodes that ended in it or are cut off after it."""
        self._steps = self._steps + 1
        over = self._episodes.ended | (self._steps >= self._longest)
        self._episodes.ended = over
        self._finished += over
        self._steps[over] = 0

    def _keep(self, actions: Iterable[FloatArray]) -> None:
        """Keep the actions since the oldest running episode began."""
        self._actions.extend(actions)
        del self._actions[: len(self._actions) - int(self._steps.max())]

    def _begin(self) -> None:
        waiting = self._episodes.waiting()
        if waiting.size:
            self._start(waiting)

    def _seeds(self, copies: IntArray) -> list[int]:
        """Return the seeds of the copies' current episodes."""
        keys = zip(copies.tolist(), self._finished[copies].tolist(), strict=True)
        return [derive(self._seed, "episode", copy, number) for copy, number in keys]

    def _start(self, copies: IntArray) -> None:
        """Reset copies to the first state of their current episodes and clear their memory."""
        self._episodes.begin(copies, self._seeds(copies))
        for array in self._memory:
            array[copies] = 0.0

    def mark(self) -> Callable[[], dict[str, NDArray[Any]]]:
        """Mark the current step; returns what makes the state that ``load`` replays to there.

        The state holds the number of finished episodes and of steps in the running episode of each
        copy, shape (E,); the actions of the last steps, shape (steps, E, sum of action sizes); and
        the observations and memory. Actions, which are most of it, are put together when asked for.
        """
        shape = (-1, self._environment.copies, sum(self._layout.action_sizes))
        actions = list(self._actions)
        arrays: dict[str, NDArray[Any]] = {
            "episodes_finished": self._finished.copy(),
            "episode_steps": self._steps.copy(),
            "observation": self._episodes.observation.copy(),
            **{f"memory.{number}": array.copy() for number, array in enumerate(self._memory)},
        }
        return lambda: {**arrays, "actions": np.array(actions, np.float32).reshape(shape)}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from the state of a mark.

        Raises:
            CheckpointUnusable: The state is missing or belongs to another number of copies.
            EnvironmentFailed: Equal seeds and actions lead to different observations.
        """
        finished, steps = state.get("episodes_finished"), state.get("episode_steps")
        if finished is None or steps is None or finished.shape != self._finished.shape:
            raise CheckpointUnusable(
                f"the checkpoint does not hold the episodes of {len(self._finished)} copies; "
                "resume with the version and the number of copies that the run was started with"
            )
        self._finished, self._steps = finished.astype(np.int64), steps.astype(np.int64)
        self._actions = list(state["actions"])
        self._episodes = Episodes(self._environment)
        self._repeat()
        self._memory = tuple(state[f"memory.{number}"] for number in range(len(self._memory)))
        running = self._steps > 0
        repeated, marked = self._episodes.observation[running], state["observation"][running]
        if not np.allclose(repeated, marked, rtol=0.0, atol=self._near, equal_nan=True):
            raise EnvironmentFailed(
                "the environment does not repeat itself: the same seeds and actions lead to other "
                "observations, so that episodes which cross iterations cannot be resumed; draw "
                "only from the generator that reset(seed) seeds, or let episodes end with "
                "iterations (collect.steps a multiple of their length)"
            )

    def _repeat(self) -> None:
        """Replay the kept actions; each copy is reset at the first step of its running episode.

        Before that its steps are arbitrary, because all copies are stepped together: its kept
        actions belong to an earlier episode, and need not be available.
        """
        episodes, steps = self._episodes, len(self._actions)
        for number, action in enumerate(self._actions):
            left = steps - number
            self._start(np.flatnonzero((self._steps == left) | episodes.ended))
            available = episodes.available()
            if available is not None:
                action = permitted_actions(self._environment.agents, action, available)
            episodes.advance(action)
        episodes.ended[:] = self._steps == 0
