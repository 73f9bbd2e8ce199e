"""Least-squares decoding: learners draw samples of their own, and decoding leaves noise.

Two holders of a unit have two updates of it, each right, so digests prove nothing, and no residual
tells a wrong vector from a noisy one ([DARL1N], Theorem 1). The noise that a set J leaves follows
from C_J before any vector is decoded: it decides when to commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.codes.analysis import decoded_variances, variance_ok
from fullrank.codes.decoding.certificate import left_inverse
from fullrank.codes.decoding.decoder import BLOCK_COLUMNS
from fullrank.codes.targets import is_each_unit
from fullrank.common.types import FloatArray, Matrix, Vector
from fullrank.rounds.contributions import Contributions
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.verification import digests_of


def least_squares(
    rows: Matrix, coded: Sequence[Vector], *, target: Matrix | None = None
) -> FloatArray:
    """The target estimated from every vector, shape (K, P) float32.

    T (C_J^T D^-1 C_J)^+ C_J^T D^-1 Y with D_jj = |row j|^2, the variance of the noise in y_j where
    the gradients of all units are equally noisy; one vector each tells no more about it.

    Args:
        rows: C_J, shape (n, M), which spans T, no row zero.
        coded: Y, n vectors of shape (P,).
        target: T, shape (K, M); by default the identity.

    >>> least_squares(np.array([[2.0], [1.0]]), [np.array([6.0]), np.array([5.0])])
    array([[4.]], dtype=float32)
    """
    noise = np.linalg.norm(rows, axis=1)
    white = rows / noise[:, None]
    if target is None or is_each_unit(target):
        weights = left_inverse(white) / noise
    else:
        weights = target @ np.linalg.pinv(white) / noise
    updates = np.empty((len(weights), len(coded[0])), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # a corrupted vector may hold 1e300
        for start in range(0, updates.shape[1], BLOCK_COLUMNS):
            columns = slice(start, start + BLOCK_COLUMNS)
            updates[:, columns] = weights @ np.stack([vector[columns] for vector in coded])
    return updates


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
        digests = digests_of(updates, contributions.sizes, contributions.statistics)
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
