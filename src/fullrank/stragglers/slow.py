"""Slowness that is multiplied with the computing time: of machines, and of units."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fullrank.common.seeding import stream
from fullrank.stragglers.additive import NoDelay
from fullrank.stragglers.base import (
    Factors,
    check_count,
    check_factor,
    check_probability,
    chosen,
    register,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slow(NoDelay):
    """The same k of some learners or units are slow, always or now and then."""

    NAME: ClassVar[str]

    k: int = 1
    """Slow ones, drawn once for the run."""
    factor: float = 10.0
    """Multiple of their computing time, at least 1."""
    probability: float = 1.0
    """Probability that one of them is slow in an iteration."""

    def __post_init__(self) -> None:
        check_count(self.NAME, "k", self.k)
        check_factor(self.NAME, self.factor)
        check_probability(self.NAME, self.probability)

    def _draw(self, k: int, seed: int, iteration: int, count: int) -> Factors:
        """``factor`` for those of k among ``count`` that are slow now, 1 for the others."""
        slow = np.zeros(count, dtype=np.bool_)
        slow[chosen(self.NAME, k, stream(seed, self.NAME), count)] = True
        now = stream(seed, self.NAME, iteration).random(count) < self.probability
        return np.where(slow & now, self.factor, 1.0)


@register("slow_learners")
@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLearners(_Slow):
    """The same k of the N learners compute more slowly, always or now and then."""

    NAME = "slow_learners"

    def factors(self, *, seed: int, iteration: int, learners: int) -> Factors:
        """The multiple of each learner's computing time.

        Raises:
            ConfigError: There are fewer than k learners.
        """
        return self._draw(self.k, seed, iteration, learners)


@register("slow_units")
@dataclass(frozen=True, slots=True, kw_only=True)
class SlowUnits(_Slow):
    """The same k of the M units take longer at every learner, always or now and then."""

    NAME = "slow_units"

    def costs(self, *, seed: int, iteration: int, units: int) -> Factors:
        """The multiple of each unit's computing time; all are among the k if M is less."""
        return self._draw(min(self.k, units), seed, iteration, units)
