"""Rounds with the decoding that a problem needs."""

from fullrank.algorithms.problem import Problem
from fullrank.codes.base import Code
from fullrank.codes.targets import target_sizes
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
    return Round(
        iteration, code, target_sizes=sizes, decoding=decoding, statistics=problem.statistics
    )
