"""Types of arrays and numbers in interfaces between modules, and marks of the types of settings."""

from enum import Enum
from math import isfinite
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fullrank.common.text import decimal

LearnerId: TypeAlias = int
"""Learner j of N, 0-based."""

UnitIndex: TypeAlias = int
"""Index of a unit, the column of C that stands for it, 0-based."""

Matrix: TypeAlias = NDArray[np.float64]
"""C in the papers, shape (rows R, units M)."""

Vector: TypeAlias = NDArray[np.float64]
"""A coded vector y_j, shape (P,)."""

EncodedVector: TypeAlias = NDArray[np.float64] | NDArray[np.float32]
"""A coded vector as it is sent and kept: float32 if it is one unit with coefficient 1, whose update
is float32 (docs/adr/0120-lone-units.md)."""

Times: TypeAlias = NDArray[np.float64]
"""Seconds, of any shape."""

Array: TypeAlias = NDArray[np.float64]
"""Double-precision numbers of any shape."""

FloatArray: TypeAlias = NDArray[np.float32]
"""Single-precision parameters, updates, observations and transitions."""

BoolArray: TypeAlias = NDArray[np.bool_]

IntArray: TypeAlias = NDArray[np.int64]

JSON: TypeAlias = dict[str, Any]
"""A JSON object."""


class RunTerm(NamedTuple):
    """A run and the term of one of its controllers; a later term fences off earlier ones."""

    run: str
    term: int
    instance: int = 0
    """Drawn at random by the controller that began the term; those of two copies of a run's
    directory differ."""


class Interval(NamedTuple):
    """A mean and its confidence interval, 95 % by default; unbounded for a single observation."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        bounds = f" [{decimal(self.low)}, {decimal(self.high)}]" if isfinite(self.low) else ""
        return f"{decimal(self.mean)}{bounds}"

    def facts(self) -> JSON:
        """The interval as JSON; a missing bound is null."""
        named = self._asdict().items()
        return {name: value if isfinite(value) else None for name, value in named}


T = TypeVar("T")


class SettingReach(Enum):
    """Where a setting holds, in the metadata of its type."""

    LOCAL = "local"
    """It names a resource of one machine: a path, an address, a device, processes."""
    PORTABLE = "portable"
    """It belongs to the run, wherever that goes on."""


Local: TypeAlias = Annotated[T, SettingReach.LOCAL]
Portable: TypeAlias = Annotated[T, SettingReach.PORTABLE]
