"""Least-squares decoding: learners draw samples of their own, and decoding leaves noise.

Two holders of a unit have two updates of it, each right, so digests prove nothing, and no residual
tells a wrong vector from a noisy one ([DARL1N], Theorem 1). The noise that a set J leaves follows
from C_J before any vector is decoded: it decides when to commit.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.codes.analysis import decoded_variances, variance_ok
from fullrank.codes.decoding.least_squares import least_squares
from fullrank.rounds.contributions import Contributions
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.verification import digests_of


@dataclass(frozen=True, slots=True)
class LeastSquaresDecoding:
    """Decoding that commits once the predicted variance is low enough.

    Args:
        max_variance: Largest mean variance of the decoded targets, in units of the variance of one
            learner's own update, at which no further row is awaited.
    """

    max_variance: float

    def precompute(self, contributions: Contributions) -> None:
        """Do nothing: only all vectors together give a unit."""

    def decide(self, contributions: Contributions) -> Decision:
        """Decode from all vectors received; HIGH_VARIANCE if a further one should be awaited."""
        if not contributions.decoder.decodable:
            return Waiting()
        received = sorted(contributions.offers)
        rows, target = contributions.matrix(received), contributions.code.target
        variance = float(decoded_variances(rows, target=target).mean())
        if not np.isfinite(variance):
            return Waiting()
        updates = least_squares(rows, contributions.vectors(received), target=target)
        if not np.isfinite(updates).all():
            return Corrupt("the decoded updates are not finite")
        digests = digests_of(updates, contributions.sizes)
        low = bool(variance_ok(variance, self.max_variance))
        return Decoded(
            verdict=Verdict.COMMIT if low else Verdict.HIGH_VARIANCE,
            updates=updates,
            digests=digests,
            reports=digests if contributions.code.recovers_units else (b"",) * rows.shape[1],
            rows=contributions.senders,
            error_bound=np.inf,
            variance=variance,
        )
