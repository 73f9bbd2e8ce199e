"""Draws from a table that grows by arrival: episodes and iterations, and which has to wait."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fullrank.replay.authorship import ENTRIES, MOST, Authorship, authorships
from fullrank.replay.pace import Pace, RateLimiter
from fullrank.replay.table import Table


class Reach(NamedTuple):
    """Extent of a table when an iteration is drawn."""

    tail: int
    head: int
    newest: Authorship
    """Authorship of the newest episode."""
    lag: int
    """Largest age, in iterations, of the parameters of the episodes that no earlier iteration could
    draw."""


class DrawWindow:
    """Episodes and the iterations that draw from them.

    Args:
        table: Holds the episodes.
        pace: How far they may run ahead of each other.

    Attributes:
        iteration: The newest iteration that asked for its range, 0 before.
        episodes: Number of the newest episode.
    """

    def __init__(self, table: Table, pace: Pace) -> None:
        self._table, self._pace = table, pace
        self._limiter = RateLimiter(window=table.capacity)
        self._drawn_tail: int | None = None
        self._drawn = -1  # the newest iteration that has drawn
        self._lag, self._oldest = 0, MOST  # what it could draw first; versions stored since
        self._is_known = True
        self.iteration = self.episodes = 0

    def reopened(self, number: int) -> None:
        """Note that the table holds episodes up to a number.

        No other is stored before an iteration asks: how old its parameters may be is unknown.
        """
        self.episodes, self._is_known = number, False

    def asked(self, iteration: int) -> None:
        """Note the iteration that is to begin: older parameters become stale, room may appear."""
        if iteration > self._drawn:
            self._drawn_tail = None  # the one before is decided
        self.iteration, self._is_known = max(self.iteration, iteration), True

    def may_draw(self, iteration: int) -> bool:
        """True if the pace lets an iteration begin."""
        return self._pace.may_update(iteration, episodes=self.episodes)

    def draw(self, *, newest: int) -> Reach:
        """Return the rows that an iteration may draw, which are kept until it was ``gathered``.

        Args:
            newest: Most rows to draw from.
        """
        table, again = self._table, self._drawn == self.iteration
        tail = max(table.tail, table.head - newest)
        self._drawn_tail = tail
        self._limiter.sampled(table.head)
        self._lag = max(self._lag if again else 0, self.iteration - self._oldest)
        self._drawn, self._oldest = self.iteration, MOST
        last = authorships(table.entries(np.array([table.head - 1]), slice(-ENTRIES, None)))
        return Reach(tail, table.head, Authorship(*last[0].tolist()), self._lag)

    def gathered(self, iteration: int) -> None:
        """Note that an iteration's minibatch was gathered: its range may be evicted."""
        if iteration >= self.iteration:
            self._drawn_tail = None

    def admits(self, before: int, rows: int) -> bool:
        """True if one more episode may be stored now.

        Args:
            before: Episodes that are to be stored before it.
            rows: Rows of all of them.
        """
        pace, head = self._pace, self._table.head + rows
        if not self._is_known:
            return False
        if self._drawn_tail is not None and head - self._table.capacity > self._drawn_tail:
            return False
        if not pace.updates_per_episode and not self._limiter.admits(head):
            return False
        return pace.may_store(self.episodes + before, iteration=self.iteration)

    @property
    def following(self) -> int:
        """The first iteration that can draw an episode stored now."""
        return max(self.iteration, self._drawn + 1)

    def is_stale(self, version: int) -> bool:
        """True if an episode began with parameters too old for the first iteration to draw it."""
        return self._pace.is_stale(version, iteration=self.following)

    def stored(self, versions: Sequence[int]) -> None:
        """Note that episodes with parameters of these versions were stored."""
        self.episodes += len(versions)
        self._oldest = min(self._oldest, *versions)
