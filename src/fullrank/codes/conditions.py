"""Conditions and decodability of C_J over loss patterns, for searches and analyses of codes."""

import math
from itertools import combinations

import numpy as np

from fullrank.codes.targets import rank_of
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, IntArray, Matrix, Vector

ALL_PATTERNS = 20_000
"""Up to this many loss patterns are enumerated; beyond, they are sampled."""

_BATCH_ENTRIES = 1 << 21
_MEASURE_WORK = 2e8


def count_patterns(rows: int, losses: int) -> int:
    """Number of ways to lose exactly ``losses`` of ``rows`` rows."""
    return math.comb(rows, losses)


def loss_patterns(rows: int, losses: int, *, limit: int = ALL_PATTERNS, seed: int = 0) -> IntArray:
    """Sets of surviving rows, shape (patterns, rows - losses), each ascending.

    All of them when there are at most ``limit``; else ``limit`` patterns of which half are random
    and half lose a block of consecutive rows (a host, a zone) at random strides.
    """
    kept = rows - losses
    if count_patterns(rows, losses) <= limit:
        patterns = np.array(list(combinations(range(rows), kept)), dtype=np.int64)
        return patterns.reshape(-1, kept)
    scattered = random_patterns(rows, losses, samples=limit - limit // 2, seed=seed)
    generator = stream(seed, "block_losses", rows, losses)
    start = generator.integers(rows, size=(limit // 2, 1))
    strides = np.flatnonzero(np.gcd(np.arange(rows), rows) == 1)
    stride = generator.choice(strides, size=(limit // 2, 1))
    blocks = (start + stride * np.arange(kept)) % rows
    return np.vstack([scattered, np.sort(blocks, axis=1)])


def random_patterns(rows: int, losses: int, *, samples: int, seed: int) -> IntArray:
    """Uniformly random sets of surviving rows, shape (samples, rows - losses), ascending."""
    generator = stream(seed, "random_losses", rows, losses)
    order = generator.permuted(np.tile(np.arange(rows), (samples, 1)), axis=1)
    return np.sort(order[:, : rows - losses], axis=1)


def rows_held(learners: IntArray, rows_per_learner: int) -> IntArray:
    """Rows of sets of learners, of which each holds consecutive ones; shape (sets, rows).

    >>> rows_held(np.array([[0, 2]]), 2)
    array([[0, 1, 4, 5]])
    """
    rows = learners[..., None] * rows_per_learner + np.arange(rows_per_learner)
    return rows.reshape(len(learners), learners.shape[1] * rows_per_learner)


def _batches(matrix: Matrix, patterns: IntArray) -> list[Matrix]:
    """C_J for the patterns, stacked a few at a time."""
    batch = max(1, _BATCH_ENTRIES // max(1, patterns.shape[1] * matrix.shape[1]))
    return [matrix[patterns[start : start + batch]] for start in range(0, len(patterns), batch)]


def conditions(matrix: Matrix, patterns: IntArray, *, target: Matrix | None = None) -> Vector:
    """kappa(C_J) = sigma_1 / sigma_rank for each pattern, shape (patterns,).

    inf where J does not decode. The rank is M unless T, by default the identity, has a lower one.
    """
    units = matrix.shape[1]
    partial = target is not None and rank_of(target) < units
    if patterns.shape[1] < (1 if partial else units):
        return np.full(len(patterns), np.inf)
    values = np.concatenate(
        [np.linalg.svd(stack, compute_uv=False) for stack in _batches(matrix, patterns)]
    )
    floor = values[:, 0] * np.finfo(np.float64).eps * max(matrix.shape)
    result = np.full(len(values), np.inf)
    if not partial:
        np.divide(values[:, 0], values[:, -1], out=result, where=values[:, -1] > floor)
        return result
    smallest = np.where(values > floor[:, None], values, np.inf).min(axis=1)
    decodes = decodable(matrix, patterns, target=target)
    np.divide(values[:, 0], smallest, out=result, where=decodes)
    return result


def worst_condition(matrix: Matrix, patterns: IntArray) -> float:
    """The largest kappa(C_J) over the patterns."""
    return float(conditions(matrix, patterns).max())


def decodable(matrix: Matrix, patterns: IntArray, *, target: Matrix | None = None) -> BoolArray:
    """Test which surviving sets determine T U, shape (patterns,).

    Args:
        matrix: C, shape (R, M).
        patterns: Sets of surviving rows, shape (patterns, survivors).
        target: T, shape (K, M); by default the identity.

    >>> rows = np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> decodable(rows, np.array([[0], [1]]), target=np.ones((1, 2)))
    array([ True, False])
    """
    if patterns.shape[1] == 0:
        return np.zeros(len(patterns), dtype=np.bool_)
    partial = target is not None and rank_of(target) < matrix.shape[1]
    judged = target if partial else None
    return np.concatenate([determines(stack, judged) for stack in _batches(matrix, patterns)])


def determines(stack: Matrix, target: Matrix | None = None) -> BoolArray:
    """Test rank([C_J; T]) = rank(C_J) for each C_J, shape (..., n, M), and T, shape (K, M).

    By default T is the identity.
    """
    rank = np.linalg.matrix_rank(stack)
    if target is None:
        return np.asarray(rank == stack.shape[-1])
    repeated = np.broadcast_to(target, (*stack.shape[:-2], *target.shape))
    return np.asarray(rank == np.linalg.matrix_rank(np.concatenate([stack, repeated], axis=-2)))


def measure_tolerance(
    matrix: Matrix, *, target: Matrix | None = None, rows_per_learner: int = 1
) -> tuple[int, bool]:
    """Largest s such that T U decodes without any s learners, and whether all sets were checked.

    By bisection, since surviving s losses implies surviving fewer. Losing all holders of a unit
    loses each target that holds it, so s is below the least number of holders of such a unit.

    Args:
        matrix: C, shape (R, M).
        target: T, shape (K, M); by default the identity.
        rows_per_learner: Consecutive rows that a learner holds, and loses together.

    >>> measure_tolerance(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    (1, True)
    """
    rows, units = matrix.shape
    learners = rows // rows_per_learner
    needed = units if target is None else rank_of(target)
    computed = matrix.reshape(learners, rows_per_learner, units).any(axis=1)
    held = np.count_nonzero(computed, axis=0)
    wanted = held if target is None else held[target.any(axis=0)]
    limit = int(np.clip(_MEASURE_WORK / (rows * units**2), 16, ALL_PATTERNS))
    low, high = 0, min(int(wanted.min()), learners - math.ceil(needed / rows_per_learner) + 1)
    while high - low > 1:
        losses = (low + high) // 2
        patterns = rows_held(loss_patterns(learners, losses, limit=limit), rows_per_learner)
        if decodable(matrix, patterns, target=target).all():
            low = losses
        else:
            high = losses
    return low, count_patterns(learners, low) <= limit
