"""Rounds of learners that draw samples of their own: decoding leaves noise, and nothing is proved.

Two holders of a unit have two updates of it, each right, so digests say nothing, and no residual
tells a wrong vector from a noisy one ([DARL1N], Theorem 1). What can be said of a set J before its
vectors are looked at is how noisy it decodes: that decides when.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fullrank.algorithms import Algorithm, IndependentAlgorithm
from fullrank.codes import Code
from fullrank.codes.analysis import decoded_variances, variance_ok
from fullrank.codes.decoding.least_squares import least_squares
from fullrank.common.types import LearnerId
from fullrank.rounds.round import Decision, Round, Verdict, corrupt


class IndependentRound(Round):
    """A round that commits once its updates are quiet enough.

    Args:
        iteration: Its number.
        code: C, shape (R, M).
        unit_sizes: P_i of each unit.
        max_variance: Largest mean variance of the decoded units, in that of one learner's own
            update, at which no further row is awaited.
    """

    def __init__(
        self, iteration: int, code: Code, *, unit_sizes: Sequence[int], max_variance: float
    ) -> None:
        super().__init__(iteration, code, unit_sizes=unit_sizes)
        self._max_variance = max_variance

    @property
    def reported(self) -> Mapping[LearnerId, int]:
        """Nobody's digests can be compared with the committed ones."""
        return {}

    @property
    def preparable(self) -> bool:
        """Only all vectors together give a unit."""
        return False

    def decide(self) -> Decision:
        """Decode by all vectors there are; HIGH_VARIANCE if a further one should be waited for."""
        if not self.decodable:
            return Decision(verdict=Verdict.WAIT)
        offers = [self._offers[row] for row in sorted(self._offers)]
        rows = self._rows_of(offers)
        variance = float(decoded_variances(rows).mean())
        if not np.isfinite(variance):
            return Decision(verdict=Verdict.WAIT)
        updates = least_squares(rows, [each.coded for each in offers if each.coded is not None])
        if not np.isfinite(updates).all():
            return corrupt("the decoded updates are not finite")
        return Decision(
            verdict=Verdict.COMMIT
            if variance_ok(variance, self._max_variance)
            else Verdict.HIGH_VARIANCE,
            updates=updates,
            digests=self._digests(updates),
            rows=tuple((each.row, each.learner) for each in self._offers.values()),
            error_bound=np.inf,
            variance=variance,
        )


def open_round(algorithm: Algorithm, iteration: int, code: Code) -> Round:
    """What takes the iteration's coded vectors, whosever samples they are of."""
    sizes = algorithm.unit_sizes
    if isinstance(algorithm, IndependentAlgorithm):
        limit = algorithm.max_variance
        return IndependentRound(iteration, code, unit_sizes=sizes, max_variance=limit)
    return Round(iteration, code, unit_sizes=sizes)
