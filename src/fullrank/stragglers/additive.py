"""Delays that are added to the computing time, drawn anew in each iteration.

``fixed_k`` is the model of the experiments in [Wang21, Sec. V]; the others are new.
"""

import math
from dataclasses import dataclass

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.stragglers.base import (
    Delays,
    check_count,
    check_duration,
    check_probability,
    chosen,
    register,
    uniforms,
)


@register("none")
@dataclass(frozen=True, slots=True, kw_only=True)
class NoDelay:
    """No learner is delayed."""

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Return no delay for any learner."""
        return np.zeros(learners)


@register("fixed_k")
@dataclass(frozen=True, slots=True, kw_only=True)
class FixedK:
    """Exactly k of the N learners straggle, drawn anew without replacement in each iteration."""

    k: int = 1
    """Stragglers per iteration, at most N."""
    delay_s: float = 1.0
    """Delay of each of them, seconds (t_s in the paper)."""

    def __post_init__(self) -> None:
        check_count("fixed_k", "k", self.k)
        check_duration("fixed_k", "delay_s", self.delay_s)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """``delay_s`` for k learners, 0 for the others.

        Raises:
            ConfigError: There are fewer than k learners.
        """
        delays = np.zeros(learners)
        late = chosen("fixed_k", self.k, stream(seed, "straggler", iteration), learners)
        delays[late] = self.delay_s
        return delays


@register("heavy_k")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyK:
    """Exactly k of the N learners straggle as in ``fixed_k``, each for a heavy-tailed time.

    P(delay > t) = (scale_s / t)^shape for t >= scale_s.
    """

    k: int = 1
    """Stragglers per iteration, at most N."""
    scale_s: float = 0.1
    """Least delay of a straggler, seconds."""
    shape: float = 2.0
    """Tail index; the mean is infinite at 1 and below."""

    def __post_init__(self) -> None:
        check_count("heavy_k", "k", self.k)
        _check_tail("heavy_k", self.scale_s, self.shape)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Pareto delays for k learners, 0 for the others.

        Raises:
            ConfigError: There are fewer than k learners.
        """
        delays = np.zeros(learners)
        late = chosen("heavy_k", self.k, stream(seed, "straggler", iteration), learners)
        uniform = stream(seed, "heavy_k", iteration).random(self.k)
        delays[late] = _heavy_tailed(uniform, self.scale_s, self.shape)
        return delays


@register("bernoulli")
@dataclass(frozen=True, slots=True, kw_only=True)
class Bernoulli:
    """Each learner straggles with the same probability and for the same time."""

    probability: float = 0.1
    """Probability that a learner straggles in an iteration."""
    delay_s: float = 1.0
    """Delay of a straggler, seconds."""

    def __post_init__(self) -> None:
        check_probability("bernoulli", self.probability)
        check_duration("bernoulli", "delay_s", self.delay_s)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """``delay_s`` for the stragglers, 0 for the others."""
        straggles, _ = uniforms(seed, iteration, learners)
        return np.where(straggles < self.probability, self.delay_s, 0.0)


@register("exponential")
@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Each learner straggles with the same probability, for an exponential time."""

    probability: float = 1.0
    """Probability that a learner straggles in an iteration."""
    mean_s: float = 0.5
    """Mean delay of a straggler, seconds."""

    def __post_init__(self) -> None:
        check_probability("exponential", self.probability)
        check_duration("exponential", "mean_s", self.mean_s)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Exponential delays for the stragglers, 0 for the others."""
        straggles, uniform = uniforms(seed, iteration, learners)
        return np.where(straggles < self.probability, -self.mean_s * np.log1p(-uniform), 0.0)


@register("pareto")
@dataclass(frozen=True, slots=True, kw_only=True)
class Pareto:
    """Each learner straggles with the same probability, for a heavy-tailed time.

    P(delay > t) = (scale_s / t)^shape for t >= scale_s.
    """

    probability: float = 1.0
    """Probability that a learner straggles in an iteration."""
    scale_s: float = 0.1
    """Least delay of a straggler, seconds."""
    shape: float = 2.0
    """Tail index; the mean is infinite at 1 and below."""

    def __post_init__(self) -> None:
        check_probability("pareto", self.probability)
        _check_tail("pareto", self.scale_s, self.shape)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Pareto delays for the stragglers, 0 for the others."""
        straggles, uniform = uniforms(seed, iteration, learners)
        delay = _heavy_tailed(uniform, self.scale_s, self.shape)
        return np.where(straggles < self.probability, delay, 0.0)


def _heavy_tailed(uniform: Delays, scale_s: float, shape: float) -> Delays:
    """Pareto delays from uniforms, by the inverse of their distribution."""
    return np.asarray(scale_s * (1.0 - uniform) ** (-1.0 / shape))


def _check_tail(model: str, scale_s: float, shape: float) -> None:
    check_duration(model, "scale_s", scale_s)
    if not 0.0 < shape < math.inf:
        raise ConfigError(f"{model}: shape must be positive and finite, got {shape}")
