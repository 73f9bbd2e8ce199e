"""Pace: how far accepted blocks and the iterations that draw from them may run ahead of each other.

The rule is Reverb's ratio of samples to inserts, counted in episodes: an iteration waits for the
episodes that are due before it, and a block waits while too many are ahead of the iterations. If
one of them has to wait, the other need not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fullrank.replay.staging import AcceptedBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The episodes of an update, and the slack on the side of the episodes."""

    episodes_per_update: int
    """Episodes that are due before each iteration; 0: neither waits for the other."""
    window: int
    """Episodes by which playing may run ahead of the updates, at least 1."""
    warmup: int
    """Episodes before the first iteration."""
    max_lag: int
    """Committed iterations by which the parameters of an episode may be older than the newest."""

    def due(self, iteration: int) -> int:
        """Return the number of episodes without which an iteration may not begin."""
        return max(1, self.warmup + self.episodes_per_update * iteration)

    def most(self, iteration: int) -> float:
        """Return the number of episodes of which more wait while this iteration is the newest."""
        if not self.episodes_per_update:
            return float("inf")
        return self.warmup + self.window + self.episodes_per_update * iteration


class RateLimiter:
    """Decides whether rows have to wait: none is evicted before a sample could draw it.

    Before the first sample none waits: a run fills its table, or repeats committed rows.

    Args:
        window: Most positions by which the head may exceed that of the newest sample.
    """

    def __init__(self, *, window: int) -> None:
        self._window = window
        self._sampled: int | None = None

    def sampled(self, head: int) -> None:
        """Record a sample drawn from positions below ``head``."""
        self._sampled = max(head, self._sampled or 0)

    def admits(self, head: int) -> bool:
        """True if rows up to ``head`` may be stored now."""
        return self._sampled is None or head - self._sampled <= self._window


class Reach(NamedTuple):
    """What an iteration may draw from."""

    head: int
    """One past the last row."""
    episodes: int
    """Episodes that were accepted so far."""
    lag: int
    """Largest age, in iterations, of the parameters of the blocks that no earlier iteration could
    draw."""
    blocks: Sequence[AcceptedBlock]
    """These blocks, in the order of their rows."""


class DrawWindow:
    """Accepted blocks and the iterations that draw from them, under one controller.

    Args:
        pace: How far they may run ahead of each other.
        capacity: Rows that the table holds.
        newest: Most rows that an iteration draws from.
        following: The first iteration.
        head: One past the last row in the table.
        episodes: Episodes that were accepted before; None: the table is empty, and is warmed up.

    Attributes:
        following: The first iteration that can draw a block which is accepted now.
        head: One past the last accepted row.
        episodes: Episodes that were accepted so far.
    """

    def __init__(
        self,
        pace: Pace,
        *,
        capacity: int,
        newest: int,
        following: int,
        head: int,
        episodes: int | None,
    ) -> None:
        self._pace, self._capacity, self._newest = pace, capacity, newest
        self.following = self._asked = following
        self.head = head
        owed = pace.due(following) - max(1, pace.warmup)
        self.episodes = owed if episodes is None else episodes
        self._limiter = RateLimiter(window=capacity)
        self._kept: int | None = None
        """Oldest row that the iteration which is under way may draw."""
        self._blocks: list[AcceptedBlock] = []

    @property
    def oldest(self) -> int:
        """Return the oldest version with which a block may have been played."""
        return self.following - self._pace.max_lag

    @property
    def missing(self) -> int:
        """Return the number of episodes that the following iteration waits for."""
        return max(0, self._pace.due(self.following) - self.episodes)

    def asked(self) -> None:
        """Note that the following iteration is to begin: the one before is decided."""
        self._asked = self.following
        self.release()

    def release(self) -> None:
        """Let the range of the last draw be evicted: its minibatch was gathered."""
        self._kept = None

    def admits(self, *, rows: int, episodes: int) -> bool:
        """Tell if a block may be accepted now: iterations are not too far behind it."""
        head = self.head + rows
        if self._kept is not None and head - self._capacity > self._kept:
            return False
        if not self._limiter.admits(head):
            return False
        fits = self.episodes + episodes <= self._pace.most(self._asked)
        return fits or (self._asked == self.following and self.missing > 0)

    def accept(self, block: AcceptedBlock) -> None:
        """Note that a block was accepted, whose rows lie from the head on."""
        self._blocks.append(block)
        self.head += block.rows
        self.episodes += block.episodes

    def draw(self) -> Reach:
        """Return what the following iteration may draw, which is kept until the next one asks."""
        iteration, blocks = self.following, self._blocks
        lag = iteration - min([iteration, *(block.version for block in blocks)])
        self._kept = max(0, self.head - self._newest)
        self._limiter.sampled(self.head)
        self.following, self._blocks = iteration + 1, []
        return Reach(self.head, self.episodes, lag, blocks)
