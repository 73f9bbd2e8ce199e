"""Algorithms whose parameters live on one device while another computes the units."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fullrank.algorithms.roles import Algorithm, Parameters
from fullrank.common.types import FloatArray, UnitIndex


def computed_elsewhere(here: Algorithm, there: Algorithm) -> Algorithm:
    """Return an algorithm that plays and steps on one device, and computes units on another.

    Args:
        here: Holds the authoritative parameters.
        there: The same algorithm on the device that computes; its parameters are overwritten.
    """
    return replace(here, gradients=CopiedGradients(here.parameters, there))


class CopiedGradients:
    """Gradients at parameters that are first copied to another device; implements ``Gradients``.

    Args:
        parameters: The authoritative parameters.
        there: The algorithm on the device that computes.
    """

    def __init__(self, parameters: Parameters, there: Algorithm) -> None:
        self._parameters, self._there = parameters, there

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit on the other device; see ``Gradients.compute``."""
        copies = self._there.parameters
        for section in self._there.problem.sections:
            copies.view(section.id)[:] = self._parameters.view(section.id)
        copies.written()
        return self._there.gradients.compute(
            batch, units, iteration=iteration, row=row, check_cancelled=check_cancelled
        )

    def fingerprint(self) -> str:
        """Return the numeric identity of the device that computes."""
        return self._there.gradients.fingerprint()
