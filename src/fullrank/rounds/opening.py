"""Rounds with the decoding that an algorithm's samples need."""

from fullrank.algorithms import Algorithm, IndependentAlgorithm
from fullrank.codes import Code
from fullrank.rounds.exact import ExactDecoding
from fullrank.rounds.least_squares import LeastSquaresDecoding
from fullrank.rounds.round import Decoding, Round


def open_round(algorithm: Algorithm, iteration: int, code: Code) -> Round:
    """Open an iteration's round, by least squares where learners draw samples of their own."""
    decoding: Decoding = ExactDecoding()
    if isinstance(algorithm, IndependentAlgorithm):
        decoding = LeastSquaresDecoding(algorithm.max_variance)
    return Round(iteration, code, target_sizes=algorithm.unit_sizes, decoding=decoding)
