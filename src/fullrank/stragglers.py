"""Delay models: the stragglers of an iteration and their delays.

A delay is a pure function of (seed, iteration, learner), so that all processes agree without
communication. A straggler delays its return after computing; it never computes less.

``fixed_k`` is the model of the experiments in [Wang21, Sec. V]; the others are new.
"""

import csv
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError, Malformed
from fullrank.common.foreign import parse_json, read_regular
from fullrank.common.registry import Registry
from fullrank.common.seeding import stream
from fullrank.common.types import IntArray, LearnerId, Local

Delays: TypeAlias = NDArray[np.float64]
"""Seconds by which each learner delays its return, shape (N,)."""

TraceRow: TypeAlias = tuple[int, int, float]
"""A recorded delay: (iteration, learner, delay_s)."""

TRACE_BYTES = 2**26
"""Largest file of recorded delays."""


class DelayModel(Protocol):
    """A registered delay model: a frozen dataclass whose fields are the keys of [stragglers]."""

    @abstractmethod
    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """The delay of each of N learners in one iteration, shape (N,) in seconds.

        Args:
            seed: The run's seed.
            iteration: The iteration.
            learners: N. Only ``fixed_k`` and ``heavy_k`` draw jointly; elsewhere learner j's delay
                is the same for every N > j.
        """


delay_models: Registry[DelayModel] = Registry(
    "delay model", "fullrank.stragglers", interface=DelayModel
)
register = delay_models.register


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
        if self.k < 0:
            raise ConfigError(f"fixed_k: k must not be negative, got {self.k}")
        _check_duration("fixed_k", "delay_s", self.delay_s)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """``delay_s`` for k learners, 0 for the others.

        Raises:
            ConfigError: There are fewer than k learners.
        """
        delays = np.zeros(learners)
        delays[_chosen("fixed_k", self.k, seed, iteration, learners)] = self.delay_s
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
        if self.k < 0:
            raise ConfigError(f"heavy_k: k must not be negative, got {self.k}")
        _check_tail("heavy_k", self.scale_s, self.shape)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Pareto delays for k learners, 0 for the others.

        Raises:
            ConfigError: There are fewer than k learners.
        """
        delays = np.zeros(learners)
        chosen = _chosen("heavy_k", self.k, seed, iteration, learners)
        uniform = stream(seed, "heavy_k", iteration).random(self.k)
        delays[chosen] = self.scale_s * (1.0 - uniform) ** (-1.0 / self.shape)
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
        _check_probability("bernoulli", self.probability)
        _check_duration("bernoulli", "delay_s", self.delay_s)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """``delay_s`` for the stragglers, 0 for the others."""
        straggles, _ = _uniforms(seed, iteration, learners)
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
        _check_probability("exponential", self.probability)
        _check_duration("exponential", "mean_s", self.mean_s)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Exponential delays for the stragglers, 0 for the others."""
        straggles, uniform = _uniforms(seed, iteration, learners)
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
        _check_probability("pareto", self.probability)
        _check_tail("pareto", self.scale_s, self.shape)

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """Pareto delays for the stragglers, 0 for the others."""
        straggles, uniform = _uniforms(seed, iteration, learners)
        delay = self.scale_s * (1.0 - uniform) ** (-1.0 / self.shape)
        return np.where(straggles < self.probability, delay, 0.0)


@register("trace")
@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Recorded delays, repeated for ever: iteration t replays t mod (last iteration + 1).

    Learners and iterations without a row are not delayed.
    """

    path: Local[str] = ""
    """A CSV file with the header ``iteration,learner,delay_s``, or a JSONL file with these keys."""
    rows: tuple[TraceRow, ...] = ()
    """The rows themselves, instead of ``path``."""
    _delays: dict[int, dict[int, float]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.rows):
            raise ConfigError("trace: give either path or rows")
        rows = _read_trace(Path(self.path)) if self.path else self.rows
        object.__setattr__(self, "_delays", _by_iteration(rows))

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """The recorded delays, for any seed."""
        recorded = self._delays.get(iteration % (max(self._delays) + 1), {})
        return np.array([recorded.get(learner, 0.0) for learner in range(learners)])


def delay_of(
    model: DelayModel, *, seed: int, iteration: int, learner: LearnerId, learners: int
) -> float:
    """Delay of one learner in an iteration, seconds; 0 beyond the configured N."""
    if learner >= learners:
        return 0.0
    return float(model.delays(seed=seed, iteration=iteration, learners=learners)[learner])


def _uniforms(seed: int, iteration: int, learners: int) -> tuple[Delays, Delays]:
    """Two uniforms per learner, drawn learner by learner so that none depends on N."""
    draws = stream(seed, "straggler", iteration).random((learners, 2))
    return draws[:, 0], draws[:, 1]


def _chosen(model: str, k: int, seed: int, iteration: int, learners: int) -> IntArray:
    """The k stragglers of an iteration, without replacement."""
    if k > learners:
        raise ConfigError(
            f"{model}: k = {k} stragglers need at least {k} learners, there are {learners}; lower k"
        )
    generator = stream(seed, "straggler", iteration)
    return np.asarray(generator.choice(learners, size=k, replace=False))


def _read_trace(path: Path) -> Sequence[TraceRow]:
    try:
        content = read_regular(path, TRACE_BYTES)
    except Malformed as error:
        raise ConfigError(f"trace: {error}") from error
    try:
        lines = content.decode().splitlines()
        jsonl = path.suffix in (".jsonl", ".ndjson")
        read = partial(parse_json, origin="a row")
        records = map(read, filter(str.strip, lines)) if jsonl else csv.DictReader(lines)
        return [
            (int(record["iteration"]), int(record["learner"]), float(record["delay_s"]))
            for record in records
        ]
    except KeyError as error:
        raise ConfigError(f"trace: {path} has a row without {error.args[0]!r}") from error
    except (Malformed, TypeError, ValueError, OverflowError, csv.Error) as error:
        raise ConfigError(f"trace: {path} holds a malformed row: {error}") from error


def _by_iteration(rows: Iterable[TraceRow]) -> dict[int, dict[int, float]]:
    delays: dict[int, dict[int, float]] = {}
    for iteration, learner, delay_s in rows:
        if iteration < 0 or learner < 0:
            raise ConfigError(f"trace: negative iteration or learner in {iteration}, {learner}")
        _check_duration("trace", "delay_s", delay_s)
        delays.setdefault(iteration, {})[learner] = delay_s
    if not delays:
        raise ConfigError("trace: there are no rows")
    return delays


def _check_duration(model: str, name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise ConfigError(f"{model}: {name} must be finite and not negative, got {value}")


def _check_tail(model: str, scale_s: float, shape: float) -> None:
    _check_duration(model, "scale_s", scale_s)
    if not 0.0 < shape < math.inf:
        raise ConfigError(f"{model}: shape must be positive and finite, got {shape}")


def _check_probability(model: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{model}: probability must lie in [0, 1], got {value}")
