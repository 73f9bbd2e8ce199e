"""Verification: digests of decoded updates against those reported, and the search for a culprit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fullrank.codes.decoding.certificate import FLOAT64, Parity, culprit
from fullrank.common.linear_hash import Words, combine
from fullrank.common.types import FloatArray, LearnerId, Matrix, UnitIndex
from fullrank.common.updates import unit_digest
from fullrank.rounds.contributions import Contributions
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict
from fullrank.rounds.reports import Reports, linear_hashes


def digests_of(updates: FloatArray, sizes: Sequence[int], statistics: int) -> tuple[bytes, ...]:
    """Digest of each target over its own entries, of which the last ones may hold statistics."""
    return tuple(
        unit_digest(updates[target, :size], statistics=statistics)
        for target, size in enumerate(sizes)
    )


def reported_digests(reports: Reports) -> dict[UnitIndex, set[bytes]]:
    """All digests reported for each unit."""
    reported: dict[UnitIndex, set[bytes]] = {}
    for digests in reports.values():
        for unit, digest in digests.items():
            reported.setdefault(unit, set()).add(digest)
    return reported


def disputed_units(reports: Reports) -> dict[UnitIndex, frozenset[LearnerId]]:
    """Units with reports that differ, each with the learners that reported it."""
    return {
        unit: frozenset(learner for learner, own in reports.items() if unit in own)
        for unit, digests in sorted(reported_digests(reports).items())
        if len(digests) > 1
    }


def disputants(contributions: Contributions) -> tuple[LearnerId, ...]:
    """The learners of which one is wrong in a corrupt round, ascending.

    They are those that reported a unit on which reports differ; where none does, all senders of
    vectors.
    """
    disputed = disputed_units(contributions.reports).values()
    senders = {offer.learner for offer in contributions.offers.values()}
    return tuple(sorted(frozenset().union(*disputed) or senders))


def disagreement(contributions: Contributions) -> str | None:
    """Return how learners contradict one another before decoding; None if they do not."""
    used = {(offer.items, offer.batch_digest) for offer in contributions.offers.values()}
    if len(used) > len({items for items, _ in used}):
        return "learners used different minibatches"
    disputed = list(disputed_units(contributions.reports))
    return f"learners disagree on the updates of units {disputed}" if disputed else None


def contradiction(contributions: Contributions, digests: Sequence[bytes]) -> str | None:
    """Return how digests of decoded units contradict the reported ones; None if they do not."""
    reported = reported_digests(contributions.reports)
    wrong = [unit for unit, digest in enumerate(digests) if reported[unit] != {digest}]
    return f"the updates of units {wrong} differ from what learners reported" if wrong else None


def contradicted_sums(contributions: Contributions, hashes: Words) -> str | None:
    """Return how hashes of decoded sums, shape (K, 2), contradict the reported ones, or None."""
    target = contributions.code.target
    wrong = np.flatnonzero(
        (
            combine(target, linear_hashes(contributions.reports, units=contributions.code.units))
            != hashes
        ).any(axis=1)
    )
    if not len(wrong):
        return None
    return f"targets {wrong.tolist()} differ from what learners reported of their units"


def checked_parity(inexact: Decoded, contributions: Contributions) -> Decision:
    """Refuse an inexact result whose vectors contradict one another."""
    offers = tuple(contributions.offers.values())
    parity = Parity(_independent_columns(contributions.matrix(contributions.offers)))
    if parity.residual(np.stack(contributions.vectors(contributions.offers))) > FLOAT64:
        return Corrupt("vectors contradict one another by more than rounding")
    learners = np.array([offer.learner for offer in offers])
    return replace(
        inexact,
        auditable=tuple(sorted(learners[parity.auditable].tolist())),
        nameable=tuple(sorted(learners[parity.nameable].tolist())),
    )


def _independent_columns(rows: Matrix) -> Matrix:
    """The rows in coordinates of their own row space; rows of full rank stay as they are."""
    rank = int(np.linalg.matrix_rank(rows))
    return rows if rank == rows.shape[1] else rows @ np.linalg.svd(rows)[2][:rank].T


def leave_one_out(
    contributions: Contributions, corrupt: Corrupt, judge: Callable[[Contributions], Decision]
) -> Decision:
    """Commit without the one learner that is wrong, if it is certain which.

    Where all reports agree, a decoded value that matches them is right; if leaving out either of
    two mends all, the error was below rounding and neither is named. Where reports disagree, every
    party to the dispute must have been left out, and only one omission may have mended it.
    """
    outcomes = {
        learner: judge(contributions.without(learner)) for learner in contributions.learners
    }
    mended = {
        learner: outcome
        for learner, outcome in outcomes.items()
        if isinstance(outcome, Decoded) and outcome.verdict is Verdict.COMMIT
    }
    untried = [learner for learner, outcome in outcomes.items() if outcome.verdict is Verdict.WAIT]
    agreed = all(len(digests) == 1 for digests in reported_digests(contributions.reports).values())
    named = _contradicting(contributions) if agreed and not mended else None
    inexact = None if named is None else outcomes[named]
    if isinstance(inexact, Decoded) and inexact.verdict is Verdict.INEXACT:
        return replace(inexact, culprit=named, reason=corrupt.reason)
    if not mended or (not agreed and (untried or len(mended) > 1)):
        return corrupt
    first = min(mended)
    certain = first if len(mended) == 1 else None
    return replace(mended[first], culprit=certain, reason=corrupt.reason)


def _contradicting(contributions: Contributions) -> LearnerId | None:
    """The learner whose vector alone contradicts the others, by parity."""
    offers = contributions.offers
    coded = np.stack(contributions.vectors(offers))
    rows = _independent_columns(contributions.matrix(offers))
    index = culprit(rows, coded, threshold=FLOAT64)
    return None if index is None else contributions.senders[index][1]
