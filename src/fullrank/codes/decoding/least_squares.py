"""Decoding of vectors that carry noise of their own: generalised least squares.

Where each learner has data of its own, y_j = sum_i c_ji (u_i + e_ji) with independent noises e_ji
([DARL1N], Sec. IV-C). The paper solves by ordinary least squares (eq. 8); weighed by their noise,
rows give the unbiased linear estimate of least variance, which
``fullrank.codes.analysis.decoded_variances`` predicts.
"""

from collections.abc import Sequence

import numpy as np

from fullrank.codes.decoding.certificate import left_inverse
from fullrank.codes.decoding.decoder import BLOCK_COLUMNS
from fullrank.codes.targets import is_each_unit
from fullrank.common.types import FloatArray, Matrix, Vector


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
