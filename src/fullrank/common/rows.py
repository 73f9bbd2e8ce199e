"""Rows of numbers, in host memory or on a device: updates of targets, and transitions."""

from typing import Any, Protocol

from fullrank.common.types import FloatArray


class Rows(Protocol):
    """Rows of float32, shape (n, size); ``numpy.asarray`` has them in host memory.

    Arrays are rows; those that stay on a device are copied once they are read.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, size)."""

    @property
    def nbytes(self) -> int:
        """Their size."""

    def __array__(self, dtype: Any = None, /, *, copy: bool | None = None) -> FloatArray:
        """The rows in host memory."""

    def tobytes(self) -> bytes:
        """Their bytes, row by row."""
