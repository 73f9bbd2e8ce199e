"""Virtual time of a run: durations as numbers, and an agenda of events."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualDurations:
    """Durations of a run's phases, in seconds."""

    step_s: float = 0.02
    """Step of an environment on a core of its own."""
    acting_s: float = 0.002
    """Choice of the actions of all copies of a collector."""
    scatter: float = 0.0
    """Standard deviation of the logarithm of a block's duration."""
    update_s: float = 0.1
    """Update of the centraliser, including its round."""
    container_update_s: float = 0.1
    """Update of a container."""
    wire_s: float = 0.001
    """Travel of episodes, or of parameters."""
    cores: int = 0
    """Cores that all actors share; 0: one for each."""

    def __post_init__(self) -> None:
        least = min(self.step_s, self.acting_s, self.scatter, self.wire_s, self.cores)
        if least < 0 or min(self.update_s, self.container_update_s) <= 0:
            raise ConfigError(
                "durations must be at least 0, and those of updates above 0, in virtual time"
            )

    def block_s(self, lengths: IntArray, *, actors: int, key: tuple[int, int, int]) -> float:
        """Return the duration of a block, which ends with its longest episode.

        Args:
            lengths: Steps of each episode.
            actors: Copies that play at a time, in all collectors.
            key: Seed, collector or iteration, and number of the block, which key the scatter.
        """
        crowd = max(1.0, actors / self.cores) if self.cores else 1.0
        normal = stream(key[0], "virtual_block", *key[1:]).standard_normal()
        spread = float(np.exp(self.scatter * (normal - self.scatter / 2)))
        return int(lengths.max()) * (self.step_s * crowd + self.acting_s) * spread


class Agenda:
    """Actions by virtual time; those of equal time are done in the order of their entry.

    Attributes:
        now_s: Time of the action that is being done.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._order = count()
        self._entries: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Enter an action that is done after a delay."""
        heapq.heappush(self._entries, (self.now_s + delay_s, next(self._order), action))

    def next(self, *, until_s: float) -> bool:
        """Advance to the next action and do it; return False if none is due by ``until_s``."""
        if not self._entries or self._entries[0][0] > until_s:
            return False
        self.now_s, _, action = heapq.heappop(self._entries)
        action()
        return True
