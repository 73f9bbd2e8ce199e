"""Micro-batches of actor-critics: a unit is the gradient of a group over one part of a minibatch.

The minibatch is cut into G parts, and an iteration recovers the sum over the parts for each group,
T = I (x) 1^T. A part's update is [s sum of the gradients of the losses of its transitions; s n],
not clipped, where n is the number of its transitions in which the agent acted and s a power of two.
Sums of updates are exact, and so is s n: the controller divides the one by the other and has the
gradient of the mean over the whole minibatch, which it clips.

Replay draws every transition of a minibatch independently, with replacement. The parts are
therefore also what G learners draw that sample on their own, as in multi-GPU MADDPG. A part's
actions have draws of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.algorithms.updates import LARGEST, weighted
from fullrank.codes.targets import LIMIT
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.fused.maddpg import FusedMADDPG


@dataclass(frozen=True, slots=True)
class Parts:
    """G parts of a minibatch of B transitions, whose sizes differ by at most one."""

    batch_size: int
    count: int

    @property
    def ranges(self) -> tuple[range, ...]:
        """Return the numbers of each part's transitions; earlier parts are the larger ones.

        >>> Parts(7, 3).ranges
        (range(0, 3), range(3, 5), range(5, 7))
        """
        least, longer = divmod(self.batch_size, self.count)
        starts = [part * least + min(part, longer) for part in range(self.count + 1)]
        return tuple(map(range, starts, starts[1:]))

    @property
    def weight(self) -> float:
        """Return s, the weight of a transition: LIMIT / LARGEST over B, rounded up to 2^k.

        >>> Parts(1000, 4).weight == 2.0**-22
        True
        """
        return LIMIT / LARGEST / 2.0 ** (self.batch_size - 1).bit_length()


class PartGradients:
    """Hand-written gradients of micro-batches; implements ``Gradients``.

    Args:
        gradients: Sums over transitions of weight s, not clipped.
        parts: Parts of the minibatch.
        alive: Columns of a transition that tell which agents acted.
    """

    def __init__(self, gradients: FusedMADDPG, parts: Parts, *, alive: slice) -> None:
        self._gradients, self._parts, self._alive = gradients, parts, alive

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute the units part by part; see ``Gradients.compute``."""
        count = self._parts.count
        for part, own in enumerate(self._parts.ranges):
            agents = [unit // count for unit in units if unit % count == part]
            if not agents:
                continue
            rows = batch[own.start : own.stop]
            weights = rows[:, self._alive].sum(0) * np.float32(self._parts.weight)
            for agent, gradient in self._gradients.keyed(
                rows, agents, key=(iteration, part), check_cancelled=check_cancelled
            ):
                yield agent * count + part, weighted(gradient, weights[agent])

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return self._gradients.fingerprint()
