"""Analysis of codes: overhead, probability of decoding, conditions and variance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code
from fullrank.codes.conditions import (
    ALL_PATTERNS,
    conditions,
    count_patterns,
    decodable,
    determines,
    loss_patterns,
    random_patterns,
    rows_held,
)
from fullrank.codes.decoding.certificate import left_inverse
from fullrank.codes.targets import rank_of
from fullrank.common.errors import CodeError, NotDecodable
from fullrank.common.types import BoolArray, Matrix, Vector

ROUNDING = 1.0 + 1e-9
"""Rows whose variance is the limit itself are not held back by its last bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probability:
    """A probability; ``standard_error`` is 0 where every pattern was checked."""

    value: float
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """kappa(C_J) over the sets J left by a number of losses; inf where J does not decode."""

    median: float
    p99: float
    worst: float
    patterns: int
    exhaustive: bool


def computation_overhead(code: Code) -> float:
    """o_c = nnz(C) / M - 1 [DARL1N, eq. 11]: unit computations beyond one each, per unit.

    >>> from fullrank.codes import make_code
    >>> computation_overhead(make_code("ldpc", rows=15, units=8))
    2.5
    """
    return float(code.load.sum()) / code.units - 1.0


def decodable_given_losses(
    code: Code, losses: int, *, samples: int = ALL_PATTERNS, seed: int = 0
) -> Probability:
    """P(decodable | exactly k learners missing), all sets of k equally likely.

    Exact when there are at most ``samples`` sets, else Monte Carlo.

    >>> from fullrank.codes import make_code
    >>> round(decodable_given_losses(make_code("replication", rows=15, units=8), 2).value, 3)
    0.8
    """
    learners = code.learners
    if not 0 <= losses <= learners:
        raise CodeError(f"losses must lie in 0..{learners}, the learners: {losses}")
    if (learners - losses) * code.rows_per_learner < rank_of(code.target):
        return Probability(value=0.0, standard_error=0.0)
    exact = count_patterns(learners, losses) <= samples
    if exact:
        kept = loss_patterns(learners, losses, limit=samples)
    else:
        kept = random_patterns(learners, losses, samples=samples, seed=seed)
    patterns = rows_held(kept, code.rows_per_learner)
    value = float(decodable(code.matrix, patterns, target=code.target).mean())
    error = 0.0 if exact else math.sqrt(value * (1.0 - value) / samples)
    return Probability(value=value, standard_error=error)


def caught_given_losses(
    code: Code, losses: int, *, samples: int = ALL_PATTERNS, seed: int = 0
) -> float:
    """Share of units that two learners of J computed, over the J that decode with k missing.

    A wrong computation of such a unit, with a digest that fits, is caught before the commit: the
    other learner's digest differs. NaN where no J decodes.

    >>> from fullrank.codes import make_code
    >>> cyclic = make_code("cyclic", rows=4, units=3)
    >>> caught_given_losses(cyclic, 1), caught_given_losses(cyclic, 0)
    (0.5, 1.0)
    """
    kept = loss_patterns(code.learners, losses, limit=samples, seed=seed)
    patterns = rows_held(kept, code.rows_per_learner)
    sufficient = kept[decodable(code.matrix, patterns, target=code.target)]
    if not len(sufficient):
        return math.nan
    counts = np.asarray(code.blocks.any(axis=1))[sufficient].sum(axis=1)
    return float((counts >= 2).mean())


def witnesses(code: Code) -> int:
    """The least number of learners that agree on a statement behind a commit.

    That is how many compute a unit or, where targets are sums, how many return the same row: a
    vector of another row proves nothing about it.

    >>> from fullrank.codes import make_code
    >>> witnesses(make_code("cyclic", rows=5, units=3, tolerance=2))
    3
    >>> witnesses(make_code("fractional", rows=4, units=4))
    2
    """
    if code.recovers_units:
        return int(code.blocks.any(axis=1).sum(axis=0).min())
    learners = np.arange(code.rows) // code.rows_per_learner
    alike: dict[bytes, set[int]] = {}
    for learner, row in zip(learners.tolist(), code.matrix, strict=True):
        if row.any():
            alike.setdefault((row + 0.0).tobytes(), set()).add(learner)
    return min(map(len, alike.values()))


def condition_statistics(
    code: Code, losses: int, *, limit: int = ALL_PATTERNS, seed: int = 0
) -> Conditions:
    """Conditions of C_J without exactly k learners: over all sets up to ``limit``, else that many.

    Sampled sets are half random and half consecutive blocks at random strides.

    >>> from fullrank.codes import make_code
    >>> statistics = condition_statistics(make_code("mds", rows=4, units=3), 1)
    >>> statistics.patterns, statistics.exhaustive, round(statistics.worst, 3)
    (4, True, 2.0)
    """
    kept = loss_patterns(code.learners, losses, limit=limit, seed=seed)
    patterns = rows_held(kept, code.rows_per_learner)
    values = conditions(code.matrix, patterns, target=code.target)
    return Conditions(
        median=float(np.quantile(values, 0.5, method="higher")),
        p99=float(np.quantile(values, 0.99, method="higher")),
        worst=float(values.max()),
        patterns=len(patterns),
        exhaustive=count_patterns(code.learners, losses) <= limit,
    )


def variance(code: Code, received: Sequence[int]) -> float:
    """V = ln det W, W = P diag(|row|^2 of C_J) P^T, P = C_J^+ [DARL1N, eq. 16].

    The (generalised) variance of the decoded units when every learner's unit gradient has noise of
    its own with unit variance; nothing of it matters where learners share the minibatch.

    Raises:
        NotDecodable: The rows have rank below M.

    >>> from fullrank.codes import make_code
    >>> code = make_code("replication", rows=24, units=12)
    >>> math.isclose(variance(code, range(24)), -12 * math.log(2))
    True
    """
    rows = code.matrix[sorted(set(received))]
    if len(rows) < code.units or np.linalg.matrix_rank(rows) < code.units:
        raise NotDecodable(f"the variance needs rows of rank {code.units}; receive more rows")
    inverse = left_inverse(rows)
    sign_and_log = np.linalg.slogdet((inverse * (rows**2).sum(axis=1)) @ inverse.T)
    return float(sign_and_log[1])


def decoded_variances(rows: Matrix, *, target: Matrix | None = None) -> Vector:
    """Variance of each target decoded by generalised least squares, shape (..., K).

    The diagonal of T (C_J^T D^-1 C_J)^+ T^T: no unbiased linear decoder has less. It matters where
    each learner has data of its own, so that y_j = sum_i c_ji (u_i + e_ji); with noise of variance
    1 in each unit's gradient, D_jj = |row j|^2.

    Args:
        rows: C_J, shape (..., n, M); rows of zeros count as not received.
        target: T, shape (K, M); by default the identity.

    Returns:
        inf for all targets where J does not decode.

    >>> decoded_variances(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    array([0.5, 1. ])
    """
    received, units = rows.shape[-2:]
    if target is not None and rank_of(target) < units:
        return _target_variances(rows, target)
    if received < units:
        return np.full((*rows.shape[:-2], units), np.inf)
    _, singular, basis = np.linalg.svd(_white(rows), full_matrices=False)
    floor = singular[..., :1] * np.finfo(np.float64).eps * received
    lost = (singular <= floor).any(axis=-1)[..., None]
    scaled = basis / np.where(lost, 1.0, singular)[..., None]
    return np.where(lost, np.inf, (scaled**2).sum(axis=-2))


def _white(rows: Matrix) -> Matrix:
    """Rows scaled so that the noise in each y_j has variance 1."""
    variances = (rows**2).sum(axis=-1)
    return np.asarray(rows / np.sqrt(np.where(rows.any(axis=-1), variances, 1.0))[..., None])


def _target_variances(rows: Matrix, target: Matrix) -> Vector:
    """``decoded_variances`` of a target that asks for less than every unit."""
    weights = target @ np.linalg.pinv(_white(rows))
    lost = ~determines(rows, target)[..., None]
    return np.where(lost, np.inf, (weights**2).sum(axis=-1))


def variance_ok(variance: float | Vector, limit: float) -> BoolArray:
    """Test whether the mean of ``decoded_variances`` lets a round end without a further row."""
    return np.asarray(np.isfinite(variance) & (variance <= limit * ROUNDING))


def least_mean_variance(units: int, received: int) -> float:
    """M / |J|: a lower bound on the mean of ``decoded_variances`` for every code.

    For D_jj = |row j|^2. The mean is that of 1 / lambda over the M eigenvalues of C_J^T D^-1 C_J,
    hence at least one over the mean of lambda; and their sum, the trace, is |J|. Equality where all
    eigenvalues are the same, as with whole copies of everything.

    >>> least_mean_variance(12, 24)
    0.5
    """
    return units / received
