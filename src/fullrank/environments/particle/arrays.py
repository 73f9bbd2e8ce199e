"""Arrays of worlds: those of NumPy, or tensors of torch on any device, by the same expressions."""

import sys
from functools import cache
from typing import Any

import numpy as np


def namespace(array: Any) -> Any:
    """Return the library of an array, ``numpy`` or ``torch``.

    Both give the same names to what worlds compute, and take ``axis``.
    """
    return _library(type(array).__module__)


def least(array: Any) -> Any:
    """Return the least entries along the first axis."""
    return np.minimum.reduce(array) if isinstance(array, np.ndarray) else array.amin(0)


@cache
def _library(module: str) -> Any:
    """Return the library of the module of a type, which is imported if there are its arrays."""
    return sys.modules[module.partition(".")[0]]
