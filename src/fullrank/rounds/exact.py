"""Exact decoding: commit only bits that no J, code or arrival order could change."""

from dataclasses import dataclass

import numpy as np

from fullrank.common.errors import Corrupted
from fullrank.common.linear_hash import WORDS, LinearHash
from fullrank.common.types import FloatArray
from fullrank.rounds.contributions import Contributions
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.reports import agreed
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
        hashing = LinearHash(
            contributions.length if sums else 0, key=self.key, grid=contributions.grid
        )
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
