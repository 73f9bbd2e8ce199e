"""Updates of learners that lie together: wrong, in the same way for all, and fitting each other."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fullrank.algorithms import Gradients
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import snap


class Forged:
    """Gradients whose every entry is wrong by the same amount.

    Args:
        gradients: The true ones.
        fingerprint: The numeric fingerprint that is claimed; by default that of the true ones.
    """

    def __init__(self, gradients: Gradients, *, fingerprint: str = "") -> None:
        self._gradients, self._claimed = gradients, fingerprint

    def compute(
        self, batch: FloatArray, units: Sequence[UnitIndex], **others: Any
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Yield each update, with the same amount added to all its entries."""
        for unit, update in self._gradients.compute(batch, units, **others):
            yield unit, snap(update + np.float32(2.0**-6))

    def fingerprint(self) -> str:
        """Return the claimed fingerprint."""
        return self._claimed or self._gradients.fingerprint()
