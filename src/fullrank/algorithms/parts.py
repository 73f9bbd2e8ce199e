"""Micro-batches of actor-critics: a unit is the gradient of one agent over one part of a minibatch.

The minibatch is cut into G parts, and an iteration recovers the sum over the parts for each agent,
T = I (x) 1^T. A part's update is [s sum of the gradients of the losses of its transitions; s n],
not clipped, where n is the number of its transitions in which the agent acted and s a power of two.
Sums of updates are exact, and so is s n: the controller divides the one by the other and has the
gradient of the mean over the whole minibatch, which it clips.

Replay draws every transition of a minibatch independently, with replacement. The parts are
therefore also what G learners draw that sample on their own, as in multi-GPU MADDPG. A part's
actions have draws of their own.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from torch import Tensor

from fullrank.algorithms.problem import Problem, Unit
from fullrank.algorithms.roles import Gradients
from fullrank.codes.targets import LIMIT, sums_of_groups
from fullrank.common.errors import GradientTooLarge
from fullrank.common.types import FloatArray, UnitIndex

LARGEST = 2.0**11
"""Entries of a mean gradient up to which sums are exact, whatever the code."""


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

    def split(self, problem: Problem) -> Problem:
        """Return the problem whose units are the parts of the given one's; its units are agents."""
        agents, parts = len(problem.units), range(self.count)
        return replace(
            problem,
            units=tuple(Unit(unit.agent, part) for unit in problem.units for part in parts),
            unit_sizes=tuple(size + 1 for size in problem.unit_sizes for _ in parts),
            reads=tuple(needs for needs in problem.reads for _ in parts),
            items=self.ranges * agents,
            target=sums_of_groups(agents, self.count),
        )


class AgentGradients(Gradients, Protocol):
    """Gradients whose units are agents, with draws of any key."""

    def keyed(
        self,
        batch: FloatArray,
        agents: Sequence[int],
        *,
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield each agent and its gradient, snapped; the draws are keyed by ``key`` and agent."""


class PartGradients:
    """Gradients of micro-batches; implements ``Gradients``.

    Args:
        gradients: Sums over transitions of weight s, not clipped.
        parts: Parts of the minibatch.
        alive: Columns of a transition that tell which agents acted.
    """

    def __init__(self, gradients: AgentGradients, parts: Parts, *, alive: slice) -> None:
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
                yield agent * count + part, _update(gradient, weights[agent])

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return self._gradients.fingerprint()


def _update(gradient: FloatArray, weight: np.float32) -> FloatArray:
    """Append the weight; where the gradient is no exact summand, zeros and a negative weight."""
    update = np.zeros(len(gradient) + 1, np.float32)
    fits = max(gradient.max(), -gradient.min()) <= LIMIT  # False where it holds a NaN
    if fits:
        update[:-1] = gradient
    update[-1] = weight if fits else -LIMIT
    return update


def means(sums: Tensor, *, size: int, agents: Collection[int]) -> Tensor:
    """Divide sums over parts by their weights.

    Args:
        sums: Decoded sums, shape (agents, > size).
        size: Entries of a gradient; the weight follows them.
        agents: The agents, for the error.

    Returns:
        Gradients of means, shape (agents, size); 0 for an agent that never acted.

    Raises:
        GradientTooLarge: A part's gradient was no exact summand.
    """
    weights = sums[:, size : size + 1]
    refused = (weights < -LIMIT / 2).flatten().tolist()
    if any(refused):
        named = [agent for agent, wrong in zip(agents, refused, strict=True) if wrong]
        raise GradientTooLarge(
            f"the gradient of agent {named[0]} over a micro-batch exceeds {LARGEST:g}, up to which "
            "sums are exact, or is no number: make rewards smaller, or set "
            "algorithm.micro_batches = 1, which clips before it sums"
        )
    return sums[:, :size] / weights.clamp_min(2.0**-100)
