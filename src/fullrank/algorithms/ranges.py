"""Ranges of the numbers that algorithms take, by name, whichever of them has a setting."""

from dataclasses import fields
from math import isfinite
from typing import Any

from fullrank.common.errors import ConfigError

SHARES = frozenset(
    {"discount", "exploration_end", "exploration_start", "smoothing", "target_rate", "trace"}
)
"""Settings from 0 to 1."""

POSITIVE = frozenset({"clip", "clip_norm", "temperature"})
"""Settings above 0."""

NOT_NEGATIVE = frozenset(
    {
        "anneal_iterations",
        "clock",
        "epsilon",
        "exploration_noise",
        "exploration_steps",
        "learning_rate",
        "logit_penalty",
        "value_clip",
    }
)
"""Settings of at least 0."""

LIMITS = frozenset({"max_variance"})
"""Settings that infinity lifts."""


def check_ranges(settings: Any) -> None:
    """Refuse numbers of a dataclass that are not finite or beyond their range.

    Raises:
        ConfigError: A setting is beyond its range.
    """
    for name in (field.name for field in fields(settings)):
        value = getattr(settings, name)
        if isinstance(value, float) and name not in LIMITS and not isfinite(value):
            raise ConfigError(f"algorithm.{name} must be finite: {value}")
        if name in SHARES and not 0 <= value <= 1:
            raise ConfigError(f"algorithm.{name} must lie between 0 and 1: {value}")
        if name in POSITIVE and value <= 0:
            raise ConfigError(f"algorithm.{name} must be above 0: {value}")
        if name in NOT_NEGATIVE and value < 0:
            raise ConfigError(f"algorithm.{name} must not be below 0: {value}")
