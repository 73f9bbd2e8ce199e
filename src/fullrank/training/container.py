"""A container: learns a head of its own and hands episodes over by priority [CMARL].

It is the pure core, without network and clock: the centraliser's parameters come in, episodes and
heads go out. Only a share of its episodes, drawn by priority, reaches the centraliser; all of them
stay in its buffer.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fullrank.algorithms.container_learner import ContainerLearner
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.hand_over import EpisodeBuffer, HandOver, ReturnPriority
from fullrank.training.heads import ContainerHead, Heads


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
