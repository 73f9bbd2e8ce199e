"""Learner processes that lie: ``python tests/faultlab/liars.py KIND serve learner ...``.

A ``liar`` computes as the others do when it joins, and reports and sends forged updates from then
on. A ``sybil`` claims another numeric fingerprint, the same as every other one.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from fullrank.algorithms import Gradients
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.roles import Algorithm
from fullrank.cli import main
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import snap
from fullrank.training.worker import Worker
from fullrank.wiring.plugins import algorithm_of

PLACE = "fullrank_learner.run_context"
FOREIGN = "of no processor"
"""The fingerprint of sybils."""


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


def lying_worker(problem: Problem, gradients: Gradients, *, seed: int) -> Worker:
    """Make the worker of a liar."""
    return Worker(problem, Forged(gradients), seed=seed)


def foreign_algorithm(*arguments: Any, **named: Any) -> Algorithm:
    """Make the algorithm of a sybil."""
    algorithm = algorithm_of(*arguments, **named)
    return replace(algorithm, gradients=Forged(algorithm.gradients, fingerprint=FOREIGN))


LIES = {"liar": ("Worker", lying_worker), "sybil": ("algorithm_of", foreign_algorithm)}

if __name__ == "__main__":
    name, stand_in = LIES[sys.argv[1]]
    with patch(f"{PLACE}.{name}", stand_in):
        main(sys.argv[2:])
