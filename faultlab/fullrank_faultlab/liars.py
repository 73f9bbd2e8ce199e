"""Learner processes that lie: ``python -m fullrank_faultlab.liars KIND serve learner ...``.

A ``liar`` computes as the others do when it joins, and reports and sends forged updates from then
on. A ``sybil`` claims another numeric fingerprint, the same as every other one.
"""

import sys
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fullrank.algorithms import Gradients
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.roles import Algorithm
from fullrank.cli import main
from fullrank.training.worker import Worker
from fullrank.wiring import algorithm_of
from fullrank_faultlab.forged import Forged

PLACE = "fullrank_learner.run_context"
FOREIGN = "of no processor"
"""The fingerprint of sybils."""


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
