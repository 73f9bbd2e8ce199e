"""Rounds with the decoding that a problem's data mode needs."""

from fullrank.algorithms import Problem
from fullrank.codes import Code
from fullrank.rounds.exact import ExactDecoding
from fullrank.rounds.least_squares import LeastSquaresDecoding
from fullrank.rounds.round import Decoding, Round


def open_round(problem: Problem, iteration: int, code: Code) -> Round:
    """Open an iteration's round, by least squares where holders of a unit draw for themselves."""
    decoding: Decoding = ExactDecoding()
    if not problem.data.exact:
        decoding = LeastSquaresDecoding(problem.data.max_variance)
    return Round(iteration, code, target_sizes=problem.unit_sizes, decoding=decoding)
