"""Statistics beside updates: a digest of their own, and checks as strict as the updates'."""

import numpy as np
import pytest
from tests.unit.rounds.builders import decoded, draw_updates, encode

from fullrank.codes import Code, make_code, support
from fullrank.codes.targets import sums_of_groups
from fullrank.common.linear_hash import LinearHash
from fullrank.common.types import FloatArray
from fullrank.common.updates import DIGEST_BYTES, update_digest
from fullrank.rounds.decision import Decision, Verdict
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.reports import report_of
from fullrank.rounds.round import Round

KEY, LENGTH, STATISTICS = 9, 7, 2
CODES = {
    "units alone": make_code("replication", rows=8, units=4),
    "solved": make_code("mds", rows=8, units=4),
    "sums": make_code("fractional", rows=8, units=4, target=sums_of_groups(2, 2), tolerance=1),
}
codes = pytest.mark.parametrize("code", CODES.values(), ids=CODES)


def told(code: Code, updates: list[FloatArray], *, lying: int | None = None) -> Decision:
    """The decision on all rows, where the statistics in a learner's vector differ from its word."""
    hashing = None if code.recovers_units else LinearHash(LENGTH, key=KEY)
    sizes = (LENGTH,) * len(code.target)
    decoding = ExactDecoding(key=KEY)
    round_ = Round(7, code, target_sizes=sizes, decoding=decoding, statistics=STATISTICS)
    for row in range(code.rows):
        for unit in support(code.matrix[row]):
            report = report_of(updates[unit], hashing, statistics=STATISTICS)
            round_.report(unit, report, learner=row)
        coded = encode(code, row, updates)
        if row == lying:
            coded[-1] += 0.125
        round_.offer(learner=row, row=row, coded=coded)
    return round_.decide()


def updates_with(statistic: float) -> list[FloatArray]:
    updates = draw_updates(sizes=(LENGTH,) * 4)
    for update in updates:
        update[-STATISTICS:] = statistic
    return updates


@codes
def test_statistics_have_a_digest_of_their_own_and_never_change_that_of_the_update(
    code: Code,
) -> None:
    first, second = (decoded(told(code, updates_with(each))) for each in (0.25, 0.375))
    assert (first.verdict, second.verdict) == (Verdict.COMMIT, Verdict.COMMIT)
    assert update_digest(first.digests) == update_digest(second.digests)
    for one, other in zip(first.digests, second.digests, strict=True):
        assert len(one) == 2 * DIGEST_BYTES
        assert one[:DIGEST_BYTES] == other[:DIGEST_BYTES]
        assert one[DIGEST_BYTES:] != other[DIGEST_BYTES:]


@codes
def test_wrong_statistics_are_never_committed_and_name_the_learner(code: Code) -> None:
    updates = updates_with(0.25)
    expected, decision = decoded(told(code, updates)), told(code, updates, lying=1)
    found = decoded(decision)
    assert (found.verdict, found.culprit) == (Verdict.COMMIT, 1)
    assert np.array_equal(found.updates, expected.updates)
    assert found.digests == expected.digests
