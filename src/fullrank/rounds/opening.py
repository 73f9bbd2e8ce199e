"""Rounds with the decoding and the reports that a problem needs."""

from collections.abc import Callable
from functools import partial

from fullrank.algorithms import Problem
from fullrank.codes import Code
from fullrank.codes.targets import is_each_unit, target_sizes
from fullrank.common.linear_hash import LinearHash
from fullrank.common.types import FloatArray
from fullrank.common.updates import unit_digest
from fullrank.rounds.contributions import report_of
from fullrank.rounds.exact import ExactDecoding
from fullrank.rounds.least_squares import LeastSquaresDecoding
from fullrank.rounds.round import Decoding, Round


def open_round(problem: Problem, iteration: int, code: Code, *, seed: int) -> Round:
    """Open an iteration's round, by least squares where holders of a unit draw for themselves.

    Args:
        problem: Sizes and data mode.
        iteration: Its number.
        code: C and its target.
        seed: The run's seed, the key of linear hashes.
    """
    decoding: Decoding = ExactDecoding(key=seed)
    if not problem.data.exact:
        decoding = LeastSquaresDecoding(problem.data.max_variance)
    sizes = target_sizes(code.target, problem.unit_sizes)
    return Round(iteration, code, target_sizes=sizes, decoding=decoding)


def reporter_of(problem: Problem, *, seed: int) -> Callable[[FloatArray], bytes]:
    """The report that a learner makes of a unit: its digest, and for sums its linear hash."""
    if problem.target is None or is_each_unit(problem.target):
        return unit_digest
    return partial(report_of, hashing=LinearHash(problem.vector_size, key=seed))
