"""A container: learns a head of its own and hands episodes over by priority [CMARL].

It is the pure core, without network and clock: the centraliser's parameters come in, episodes and
heads go out. Only a share of its episodes, drawn by priority, reaches the centraliser; all of them
stay in its buffer. The priority of an episode is its return between two bounds, plus a floor that
keeps it above 0; a share of each batch is drawn without replacement, in proportion to it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.algorithms.container_learner import ContainerLearner
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import Array, FloatArray, IntArray
from fullrank.replay.episodes import EpisodeLayout
from fullrank.training.heads import ContainerHead, Heads


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnPriority:
    """p = (R - low) / (high - low) + floor, with the return R clipped to its bounds."""

    low: float = 0.0
    """Least return of an episode, L."""
    high: float = 20.0
    """Greatest return of an episode, H."""
    floor: float = 0.1
    """Priority of an episode of the least return, epsilon."""

    def __post_init__(self) -> None:
        if not (self.low < self.high and self.floor > 0):
            raise ConfigError("the priority of episodes needs low below high, and a floor above 0")

    def of(self, episodes: Sequence[FloatArray], layout: EpisodeLayout) -> Array:
        """Return the priority of each episode, above 0.

        Args:
            episodes: Packed steps of each, shape (steps + 1, row_size or more).
            layout: Columns of a row.
        """
        returns = np.array(
            [episode[:-1, layout.reward].sum(dtype=np.float64) for episode in episodes]
        )
        share = (returns.clip(self.low, self.high) - self.low) / (self.high - self.low)
        priorities: Array = share + self.floor
        return priorities


class HandOver:
    """Draws the episodes of a container that travel to the centraliser.

    After any number of batches, the number of drawn episodes differs from ``share`` times all of
    them by at most 1/2.

    Args:
        share: Share of the episodes that travel, eta / 100, from 0 to 1.
        seed: The run's seed; batch b is keyed by (seed, "hand_over", container, b).
        container: Number of the container.

    Attributes:
        offered: Episodes of all batches.
        handed: Episodes that were drawn.
    """

    def __init__(self, share: float, *, seed: int, container: int) -> None:
        if not 0 <= share <= 1:
            raise ConfigError(f"the share of episodes that travel is {share}; it is from 0 to 1")
        self._share, self._seed, self._container = share, seed, container
        self.offered = self.handed = self._batches = 0

    def choose(self, priorities: Array) -> IntArray:
        """Return the numbers of a batch's episodes that travel, ascending.

        Args:
            priorities: Priority of each, above 0, shape (episodes,).
        """
        self.offered += len(priorities)
        count = int(self._share * self.offered + 0.5) - self.handed
        generator = stream(self._seed, "hand_over", self._container, self._batches)
        arrival = generator.standard_exponential(len(priorities)) / priorities
        chosen: IntArray = np.sort(np.argsort(arrival, kind="stable")[:count])
        self.handed += count
        self._batches += 1
        return chosen


class EpisodeBuffer:
    """The newest episodes of one process, drawn with replacement by priority.

    P(episode) = p^exponent / sum of all p^exponent, the proportional variant of [Schaul16, Sec.
    3.3]. Differs from the paper: priorities never change, and there are no importance weights.

    Args:
        capacity: Most episodes that are kept.
        exponent: Exponent alpha of the priorities; 0 draws uniformly.
    """

    def __init__(self, capacity: int, *, exponent: float) -> None:
        if capacity < 1 or exponent < 0:
            raise ConfigError("a buffer keeps at least 1 episode, and its exponent is at least 0")
        self._exponent = exponent
        self._episodes: deque[FloatArray] = deque(maxlen=capacity)
        self._weights: deque[float] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, episodes: Sequence[FloatArray], priorities: Array) -> None:
        """Keep episodes, and drop the oldest beyond the capacity.

        Args:
            episodes: Packed rows of each.
            priorities: Priority of each, above 0, shape (episodes,).
        """
        self._episodes.extend(episodes)
        self._weights.extend((priorities**self._exponent).tolist())

    def draw(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Return all rows of ``size`` drawn episodes, one after the other."""
        before = np.cumsum(self._weights)
        points = generator.random(size) * before[-1]
        drawn = np.searchsorted(before[:-1], points, side="right")
        return np.concatenate([self._episodes[number] for number in drawn.tolist()])


class Container:
    """One container.

    Args:
        number: Its number among the containers.
        learner: Learns the head.
        buffer: Keeps its episodes.
        priority: Priority of an episode.
        hand_over: Draws the episodes that travel to the centraliser.
        batch_size: Episodes of a minibatch.
        seed: The run's seed; update k is keyed by (seed, "container_sample", number, k).
        heads: Those of all containers, of which this one goes on with its own.

    Attributes:
        number: As given.
        learner: As given.
        hand_over: As given.
        trunk_version: Version of the centraliser's parameters in the trunk; -1 before the first.
    """

    def __init__(
        self,
        number: int,
        *,
        learner: ContainerLearner,
        buffer: EpisodeBuffer,
        priority: ReturnPriority,
        hand_over: HandOver,
        batch_size: int,
        seed: int,
        heads: Heads,
    ) -> None:
        self.number, self.learner, self._buffer = number, learner, buffer
        self._priority, self.hand_over = priority, hand_over
        self._batch_size, self._seed, self._heads = batch_size, seed, heads
        self.trunk_version = -1
        self._is_whole = True  # no update has ended half-way
        if (head := heads.of(number)) is not None:
            learner.take_head(head.values, updates=head.version)

    @property
    def may_learn(self) -> bool:
        """True once it has a trunk and the buffer a minibatch of episodes."""
        return self.trunk_version >= 0 and len(self._buffer) >= self._batch_size

    @property
    def is_sound(self) -> bool:
        """False if an update raised, its head is not finite, or a newer one is known."""
        newest, learner = self._heads.of(self.number), self.learner
        is_newest = newest is None or newest.version <= learner.updates
        return self._is_whole and is_newest and bool(np.isfinite(learner.head).all())

    def take_trunk(self, version: int, network: FloatArray) -> None:
        """Read the trunk of the centraliser's network of a version, unless a newer one is held."""
        if version > self.trunk_version:
            self.learner.take_trunk(network)
            self.trunk_version = version

    def store(self, episodes: Sequence[FloatArray]) -> IntArray:
        """Keep episodes; return the numbers of those that travel to the centraliser, ascending."""
        priorities = self._priority.of(episodes, self.learner.layout)
        self._buffer.add(episodes, priorities)
        return self.hand_over.choose(priorities)

    def minibatch(self) -> tuple[FloatArray, list[FloatArray]]:
        """Return the arguments of the next ``step``: rows, and the heads of the others."""
        generator = stream(self._seed, "container_sample", self.number, self.learner.updates)
        rows = self._buffer.draw(self._batch_size, generator)
        return rows, self._heads.others(self.number)

    def step(self, rows: FloatArray, others: Sequence[FloatArray]) -> Mapping[str, float]:
        """Take one step of the head and the mixer; see ``ContainerLearner.update``."""
        self._is_whole = False
        statistics = self.learner.update(rows, others)
        self._is_whole = True
        return statistics

    def update(self) -> Mapping[str, float]:
        """Take one step with the next minibatch."""
        return self.step(*self.minibatch())

    def publish(self) -> ContainerHead:
        """Publish the head, which is refused unless it is sound, and return it."""
        head = ContainerHead(self.learner.updates, self.learner.head)
        self._heads.publish(self.number, head)
        return head
