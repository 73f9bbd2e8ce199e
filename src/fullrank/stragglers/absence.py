"""Learners that are away for several iterations: a Markov chain of two states [Gilbert60].

Each learner follows a chain of its own. The same uniform number decides about both states,
so that an iteration in which it is extreme fixes the state whatever the one before; the state is
found from the last such iteration on, without a walk from the first.
"""

import math
from dataclasses import dataclass

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.stragglers.base import Delays, check_probability, register

BLOCK = 256
"""Iterations drawn together."""


@register("absence")
@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A learner leaves for some iterations, answers nothing meanwhile, and returns by itself."""

    probability: float = 0.02
    """Probability that a learner that is there leaves with an iteration."""
    mean_iterations: float = 10.0
    """Mean length of an absence, iterations; at least 1 / (1 - probability)."""

    def __post_init__(self) -> None:
        check_probability("absence", self.probability)
        if not (1.0 <= self.mean_iterations < math.inf and self._returns <= 1.0 - self.probability):
            raise ConfigError(
                "absence: mean_iterations must be finite and at least 1 / (1 - probability), got "
                f"{self.mean_iterations} with probability = {self.probability}"
            )

    @property
    def _returns(self) -> float:
        """Probability that a learner that is away returns with an iteration."""
        return 1.0 / self.mean_iterations

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Inf for the learners that are away, 0 for the others; none is before iteration 0."""
        away = np.zeros(learners, dtype=np.bool_)
        unknown = np.ones(learners, dtype=np.bool_)
        for block in range(iteration // BLOCK, -1, -1):
            draws = stream(seed, "absence", block).random((learners, BLOCK))
            draws = draws[:, : iteration + 1 - block * BLOCK]
            leaves = draws < self.probability
            moves = leaves | (draws >= 1.0 - self._returns)
            last = moves.shape[1] - 1 - moves[:, ::-1].argmax(axis=1)
            away |= unknown & leaves[np.arange(learners), last]
            unknown &= ~moves.any(axis=1)
            if not unknown.any():
                break
        return np.where(away, math.inf, 0.0)
