"""Exact decoding: commit only bits that no J, code or arrival order could change."""

from dataclasses import dataclass

import numpy as np

from fullrank.common.errors import Corrupted
from fullrank.common.types import FloatArray
from fullrank.rounds.contributions import Contributions
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.verification import (
    checked_parity,
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
    """

    comparable = True

    def precompute(self, contributions: Contributions) -> None:
        """Decode and hash the units that rows of one unit give."""
        contributions.single_units.precompute()

    def decide(self, contributions: Contributions) -> Decision:
        """Decode if the rows span the target; check the certificate and the digests."""
        if not contributions.decoder.decodable:
            return Waiting()
        self.precompute(contributions)
        decision = _judge(contributions)
        if isinstance(decision, Corrupt):
            return leave_one_out(contributions, decision, _judge)
        return decision


def _judge(contributions: Contributions) -> Decision:
    """Judge some rows and reports; whether they agree comes before their rank."""
    if (reason := disagreement(contributions)) is not None:
        return Corrupt(reason)
    decoder = contributions.decoder
    if not decoder.decodable:
        return Waiting()
    precomputed = contributions.single_units.updates(contributions.offers)
    if precomputed is not None and contradiction(contributions, precomputed[1]) is None:
        return _committed(contributions, *precomputed)
    try:
        updates = _decode(contributions)
    except Corrupted as error:
        return Corrupt(str(error))
    digests = digests_of(updates, contributions.sizes)
    if not decoder.exact:
        inexact = Decoded(
            verdict=Verdict.INEXACT,
            updates=updates,
            digests=digests,
            rows=contributions.senders,
            error_bound=decoder.error_bound,
        )
        return checked_parity(inexact, contributions)
    if (reason := contradiction(contributions, digests)) is not None:
        return Corrupt(reason)
    return _committed(contributions, updates, digests)


def _committed(
    contributions: Contributions, updates: FloatArray, digests: tuple[bytes, ...]
) -> Decoded:
    return Decoded(
        verdict=Verdict.COMMIT, updates=updates, digests=digests, rows=contributions.senders
    )


def _decode(contributions: Contributions) -> FloatArray:
    """All targets, block by block, so that each is cast while it is in the cache."""
    updates = np.empty((len(contributions.code.target), contributions.length), np.float32)
    for start, block in contributions.decoder.blocks():
        updates[:, start : start + block.shape[1]] = block
    return updates
