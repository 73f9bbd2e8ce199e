"""Decoding of a round, exact or by least squares.

Exact decoding commits only bits that no J, code or arrival order could change.

Least squares decode where learners draw samples of their own, and leave noise. Two holders of a
unit have two updates of it, each right, so digests prove nothing, and no residual tells a wrong
vector from a noisy one ([DARL1N], Theorem 1). The noise that a set J leaves follows from C_J before
any vector is decoded: it decides when to commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.algorithms.problem import Problem
from fullrank.codes.analysis import decoded_variances, variance_ok
from fullrank.codes.base import Code
from fullrank.codes.decoding.certificate import left_inverse
from fullrank.codes.decoding.decoder import BLOCK_COLUMNS
from fullrank.codes.targets import is_each_unit, target_sizes
from fullrank.common.errors import Corrupted
from fullrank.common.linear_hash import WORDS, LinearHash
from fullrank.common.types import FloatArray, Matrix, Vector
from fullrank.rounds.contributions import Contributions
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.reports import agreed
from fullrank.rounds.round import Decoding, Round
from fullrank.rounds.verification import (
    checked_parity,
    contradicted_sums,
    contradiction,
    digests_of,
    disagreement,
    leave_one_out,
)


@dataclass(frozen=True, slots=True)
class ExactDecoding:
    """Decoding for learners that share each iteration's samples.

    A set of rows commits once it spans the target, the certificate proves the decoded values and
    they match every reported digest. If something is wrong, each learner is left out in turn: where
    leaving out a single one mends all, it is the culprit, and the others' rows are committed. This
    rests on one learner at most being wrong in an iteration; two that agree on the same wrong bits
    would outvote one.

    A target of one unit is checked by the unit's digest, a sum by the linear hashes of its units;
    both see any accident, the digest also a vector that was forged (``common.linear_hash``).

    Args:
        key: Of the linear hashes, known to the learners; not used where every target is one unit.
    """

    key: int = 0

    def precompute(self, contributions: Contributions) -> None:
        """Decode and hash the units that rows of one unit give."""
        contributions.single_units.precompute()

    def decide(self, contributions: Contributions) -> Decision:
        """Decode if the rows span the target; check the certificate and the digests."""
        if not contributions.decoder.decodable:
            return Waiting()
        self.precompute(contributions)
        decision = self._judge(contributions)
        if isinstance(decision, Corrupt):
            return leave_one_out(contributions, decision, self._judge)
        return decision

    def _judge(self, contributions: Contributions) -> Decision:
        """Judge some rows and reports; whether they agree comes before their rank."""
        if (reason := disagreement(contributions)) is not None:
            return Corrupt(reason)
        if not contributions.decoder.decodable:
            return Waiting()
        precomputed = contributions.single_units.updates(contributions.offers)
        if precomputed is not None and contradiction(contributions, precomputed[1]) is None:
            return _committed(contributions, *precomputed)
        return self._decode(contributions)

    def _decode(self, contributions: Contributions) -> Decision:
        """Solve for the targets and verify them."""
        decoder, sums = contributions.decoder, not contributions.code.recovers_units
        hashing = LinearHash(contributions.length if sums else 0, key=self.key)
        updates = np.empty((len(contributions.code.target), contributions.length), np.float32)
        hashes = np.zeros((len(updates), WORDS), np.uint64)
        try:
            for start, block in decoder.blocks():  # each is cast while it is in the cache
                updates[:, start : start + block.shape[1]] = block
                if sums:
                    hashes += hashing.of(block, start=start)
        except Corrupted as error:
            return Corrupt(str(error))
        digests = digests_of(updates, contributions.sizes, contributions.statistics)
        if not decoder.exact:
            inexact = Decoded(
                verdict=Verdict.INEXACT,
                updates=updates,
                digests=digests,
                reports=_reports(contributions, digests),
                rows=contributions.senders,
                error_bound=decoder.error_bound,
            )
            return checked_parity(inexact, contributions)
        reason = (
            contradicted_sums(contributions, hashes)
            if sums
            else contradiction(contributions, digests)
        )
        return _committed(contributions, updates, digests) if reason is None else Corrupt(reason)


def _committed(
    contributions: Contributions, updates: FloatArray, digests: tuple[bytes, ...]
) -> Decoded:
    return Decoded(
        verdict=Verdict.COMMIT,
        updates=updates,
        digests=digests,
        reports=_reports(contributions, digests),
        rows=contributions.senders,
    )


def _reports(contributions: Contributions, digests: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the digests where every target is a unit, else the reports of the learners."""
    if contributions.code.recovers_units:
        return digests
    return agreed(contributions.reports, units=contributions.code.units)


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
