"""Delay models: how late each learner is in an iteration; and what one learner makes of it.

All draws are pure functions of (seed, iteration, learner or unit), so that all processes agree
without communication. A straggler is late; it never computes less.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.registry import Registry
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, IntArray, LearnerId, UnitIndex

Delays: TypeAlias = NDArray[np.float64]
"""Seconds for which each learner pauses before its first unit, shape (N,); inf: it is away."""

Factors: TypeAlias = NDArray[np.float64]
"""Multiples of a computing time, by learner, shape (N,), or by unit, shape (M,); at least 1."""


class DelayModel(Protocol):
    """A registered delay model: a frozen dataclass whose fields are the keys of [stragglers].

    One that has the members of ``SlowsLearners``, ``SlowsUnits`` or ``FollowsTime`` does that, too.
    """

    @abstractmethod
    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """The delay of each of N learners in one iteration, shape (N,) in seconds.

        Args:
            seed: The run's seed.
            iteration: The iteration.
            learners: N. Only models with a number k of learners draw jointly; elsewhere learner
                j's delay is the same for every N > j.
        """


@runtime_checkable
class SlowsLearners(Protocol):
    """A model of slow machines, whose computing takes a multiple of its time."""

    def factors(self, *, seed: int, iteration: int, learners: int) -> Factors:
        """The multiple of each of N learners in one iteration, shape (N,)."""


@runtime_checkable
class SlowsUnits(Protocol):
    """A model of slow units, which take a multiple of their time at every learner."""

    def costs(self, *, seed: int, iteration: int, units: int) -> Factors:
        """The multiple of each of M units in one iteration, shape (M,)."""


@runtime_checkable
class FollowsTime(Protocol):
    """A model that depends on the time of a round, too."""

    def at(self, time_s: float) -> DelayModel:
        """The model of a round that begins ``time_s`` seconds after the run."""


delay_models: Registry[DelayModel] = Registry(
    "delay model", "fullrank.stragglers", interface=DelayModel
)
register = delay_models.register


def model_at(model: DelayModel, time_s: float) -> DelayModel:
    """The model of a round that begins ``time_s`` seconds after the run."""
    return model.at(time_s) if isinstance(model, FollowsTime) else model


def factors_of(model: DelayModel, *, seed: int, iteration: int, learners: int) -> Factors:
    """The multiple of each learner's computing time, shape (N,)."""
    if isinstance(model, SlowsLearners):
        return model.factors(seed=seed, iteration=iteration, learners=learners)
    return np.ones(learners)


def costs_of(model: DelayModel, *, seed: int, iteration: int, units: int) -> Factors:
    """The multiple of each unit's computing time, shape (M,)."""
    if isinstance(model, SlowsUnits):
        return model.costs(seed=seed, iteration=iteration, units=units)
    return np.ones(units)


def stretches_of(model: DelayModel, held: BoolArray, *, seed: int, iteration: int) -> Factors:
    """The multiple of the time that each learner takes for all its units, shape (N,); 0 for none.

    Args:
        model: The run's model.
        held: True where a learner computes a unit, shape (N, M).
        seed: The run's seed.
        iteration: The iteration.
    """
    learners, units = held.shape
    factors = factors_of(model, seed=seed, iteration=iteration, learners=learners)
    costs = costs_of(model, seed=seed, iteration=iteration, units=units)
    return np.asarray(factors * (held @ costs / np.maximum(1, held.sum(axis=1))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """A learner's share of a delay model in one iteration."""

    delay_s: float
    """Pause before the first unit; inf: the learner is away."""
    factor: float
    """Multiple of its computing time."""
    costs: Factors
    """Multiple of each unit's time, shape (M,)."""

    def stretch(self, units: Iterable[UnitIndex]) -> float:
        """The multiple of the time that some units take together."""
        return self.factor * float(self.costs[list(units)].mean())


def lateness_of(
    model: DelayModel,
    *,
    seed: int,
    iteration: int,
    learner: LearnerId,
    learners: int,
    units: int = 0,
    time_s: float = 0.0,
) -> Lateness:
    """The lateness of one learner; beyond the configured N, that of the units alone.

    Args:
        model: The run's model.
        seed: The run's seed.
        iteration: The iteration.
        learner: Index of the learner.
        learners: N.
        units: M.
        time_s: Time since the run began.
    """
    model = model_at(model, time_s)
    costs = costs_of(model, seed=seed, iteration=iteration, units=units)
    if learner >= learners:
        return Lateness(delay_s=0.0, factor=1.0, costs=costs)
    delays = model.delays(seed=seed, iteration=iteration, learners=learners)
    factors = factors_of(model, seed=seed, iteration=iteration, learners=learners)
    return Lateness(delay_s=float(delays[learner]), factor=float(factors[learner]), costs=costs)


def check_duration(model: str, name: str, value: float) -> None:
    """Refuse a time that is negative or not finite."""
    if not 0.0 <= value < math.inf:
        raise ConfigError(f"{model}: {name} must be finite and not negative, got {value}")


def check_count(model: str, name: str, value: int) -> None:
    """Refuse a negative number of learners or units."""
    if value < 0:
        raise ConfigError(f"{model}: {name} must not be negative, got {value}")


def check_factor(model: str, value: float) -> None:
    """Refuse a multiple that is less than 1, which no pause can bring about, or not finite."""
    if not 1.0 <= value < math.inf:
        raise ConfigError(f"{model}: factor must be finite and at least 1, got {value}")


def check_probability(model: str, value: float) -> None:
    """Refuse a probability outside [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{model}: probability must lie in [0, 1], got {value}")


def uniforms(seed: int, iteration: int, learners: int) -> tuple[Delays, Delays]:
    """Two uniforms per learner, drawn learner by learner so that none depends on N."""
    draws = stream(seed, "straggler", iteration).random((learners, 2))
    return draws[:, 0], draws[:, 1]


def chosen(model: str, k: int, draws: np.random.Generator, learners: int) -> IntArray:
    """The k stragglers among N learners, without replacement.

    Raises:
        ConfigError: There are fewer than k learners.
    """
    if k > learners:
        raise ConfigError(
            f"{model}: k = {k} stragglers need at least {k} learners, there are {learners}; lower k"
        )
    return np.asarray(draws.choice(learners, size=k, replace=False))
