"""The switch riddle [Foerster16]: prisoners who share one bit must know when all were in the room.

On each of T days one of n prisoners, drawn uniformly, is in a room with a switch, which is off at
first. Only that prisoner sees the switch. It does nothing, flips the switch, or tells that every
prisoner has been in the room, which ends the episode: all are paid 1 if it is true, else -1.
Otherwise the episode ends unpaid after day T = 4 n - 6, or 2 for two prisoners. Prisoners must
remember whether they have been in the room, and the number of the day.

A team whose visitors know who has been in the room tells on the day of the last first visit; no
team earns more. Up to n = 3 the bit suffices to earn as much: off stands for one prisoner so far,
on for two, so that a prisoner that comes for the first time and sees it on can tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Discrete, Environment, Step, register
from fullrank.environments.capabilities import chosen_actions

NOTHING, FLIP, TELL = range(3)
"""The actions; prisoners outside the room can only do nothing."""


@register("switch_riddle")
@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRiddle:
    """n prisoners, 3 by default."""

    days: int = 0
    """T, the longest episode; 0: 4 n - 6, at least 2."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        prisoners = agents or 3
        if prisoners < 2:
            raise ConfigError(f"switch_riddle needs at least two agents: {agents}")
        if self.days < 0:
            raise ConfigError(f"environment.days must not be negative: {self.days}")
        days = self.days or max(2, 4 * prisoners - 6)
        return _Riddle(prisoners, days, copies)


class _Riddle:
    """E copies; a prisoner observes whether it is in the room and, if so, the switch.

    The state holds the prisoners who have been in the room, the one who is there, the switch, and
    the share of days that have passed.
    """

    shared_reward = True

    def __init__(self, prisoners: int, days: int, copies: int) -> None:
        self.agents: tuple[AgentSpec, ...] = tuple(
            AgentSpec(name=f"agent_{i}", observation_size=2, action=Discrete(3))
            for i in range(prisoners)
        )
        self.copies, self.state_size, self._days = copies, 2 * prisoners + 2, days
        self._visitors = np.zeros((copies, days + 1), dtype=np.int64)
        self._day = np.zeros(copies, dtype=np.int64)
        self._switch, self._won = np.zeros(copies, dtype=bool), np.zeros(copies, dtype=bool)
        self._over = np.ones(copies, dtype=bool)
        self._visited = np.zeros((copies, prisoners), dtype=bool)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``; all visitors are drawn in advance."""
        fresh = list(copies)
        for seed, copy in zip(seeds, fresh, strict=True):
            drawn = stream(seed, "switch_riddle").integers(len(self.agents), size=self._days)
            self._visitors[copy, : self._days] = drawn
        self._day[fresh], self._visited[fresh] = 0, False
        self._switch[fresh] = self._won[fresh] = self._over[fresh] = False
        self._visited |= self._present()
        return self._observation()

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``.

        Raises:
            EnvironmentFailed: A prisoner outside the room does something.
        """
        before = self._alive()
        chosen = chosen_actions(self.agents, action, available=self.available(), alive=before)
        deed = (chosen * self._present()).sum(axis=1)  # of the prisoner in the room
        told, all_visited = deed == TELL, self._visited.all(axis=1)
        self._won = told & all_visited
        self._switch ^= deed == FLIP
        self._day = np.minimum(self._day + 1, self._days)
        self._over = self._over | told | (self._day == self._days)
        self._visited |= self._present()
        paid = np.where(told, np.where(all_visited, 1.0, -1.0), 0.0)
        alive = self._alive()
        return Step(
            observation=self._observation(),
            reward=np.repeat(paid[:, None], len(self.agents), axis=1),
            terminated=before & ~alive,
            alive=alive,
            ended=self._over.copy(),
        )

    def state(self) -> FloatArray:
        """Return the global states; see ``Stated``."""
        columns = self._switch, self._day / self._days
        parts = self._visited, self._present(), np.stack(columns, axis=1)
        return np.concatenate(parts, axis=1).astype(np.float32)

    def available(self) -> BoolArray:
        """Return the available actions; see ``Masked``."""
        present = self._present()
        choices = np.stack([np.ones_like(present), present, present], axis=2)
        return choices.reshape(self.copies, -1)

    def won(self) -> BoolArray:
        """See ``Contested``: a prisoner told the truth."""
        return self._won.copy()

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _alive(self) -> BoolArray:
        return np.repeat(~self._over[:, None], len(self.agents), axis=1)

    def _present(self) -> BoolArray:
        """Return the prisoner in the room as one-hot, shape (E, n); zeros after the end."""
        visitor = np.take_along_axis(self._visitors, self._day[:, None], axis=1)
        present: BoolArray = (visitor == np.arange(len(self.agents))) & ~self._over[:, None]
        return present

    def _observation(self) -> FloatArray:
        present = self._present()
        seen = np.stack([present, present & self._switch[:, None]], axis=2)
        return seen.reshape(self.copies, -1).astype(np.float32)
