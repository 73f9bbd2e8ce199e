"""Nothing is borne out by f learners that lie together, of units and of sums."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import Code, make_code
from fullrank.common.linear_hash import HASH_BYTES
from fullrank.common.updates import DIGEST_BYTES
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.quorum import Quorum, claims_of, computed_value, exclude, statements
from fullrank.rounds.reports import Claim
from fullrank.rounds.round import Round

TRUE, LENGTH = 0, 3
CODES = [
    make_code("cyclic", rows=6, units=3, tolerance=3),
    make_code("replication", rows=6, units=2),
    make_code("fractional", rows=6, units=4, tolerance=2),
]


def _value(stated: int) -> bytes:
    return bytes([stated]) * (DIGEST_BYTES + HASH_BYTES)


def _round(code: Code, stated: Sequence[int]) -> Round:
    """Learner j computed row j; its report and its vector are those of version ``stated[j]``."""
    round_ = Round(0, code, decoding=ExactDecoding(), target_sizes=[LENGTH] * len(code.target))
    for learner, version in enumerate(stated):
        for unit in np.flatnonzero(code.matrix[learner]).tolist():
            round_.report(unit, _value(version), learner=learner)
        round_.offer(learner=learner, row=learner, coded=np.full(LENGTH, float(version)))
    return round_


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
@given(data=st.data())
def test_what_f_learners_and_no_more_agree_on_is_not_borne_out(
    code: Code, data: st.DataObject
) -> None:
    faults = data.draw(st.integers(1, 2))
    liars = data.draw(st.sets(st.integers(0, 5), max_size=faults))
    stated = [data.draw(st.integers(0, 2)) if j in liars else TRUE for j in range(6)]
    round_ = _round(code, stated)
    quorum = Quorum(faults=faults)
    present = data.draw(st.just(liars) | st.sets(st.integers(0, 5)))
    lacking = quorum.lacking(round_, {learner: learner for learner in present})
    made = statements(round_.contributions, vectors=not code.recovers_units)
    for claim, values in made.items():
        if claim in claims_of(code) and len(set(values.values())) == 1 and claim not in lacking:
            assert (values.keys() & present) - liars
    wrong = {learner for learner in liars if stated[learner] != TRUE}
    heard = {each for claim in quorum.disputed(round_) for each in claim.units}
    assert bool(heard) == bool(wrong)  # a unit has more holders here than there are liars


def test_learners_of_one_domain_have_one_voice_and_the_absent_have_none() -> None:
    round_ = _round(CODES[0], [TRUE] * 6)
    quorum = Quorum(faults=1)
    apart = {learner: f"host-{learner}" for learner in range(6)}
    assert not quorum.lacking(round_, apart)
    together = quorum.lacking(round_, dict.fromkeys(range(6), "host"))
    assert set(together) == set(claims_of(CODES[0]))
    assert quorum.lacking(round_, {0: "host-0", 1: "host-1"})


def test_vectors_of_a_sum_are_compared_although_all_their_reports_agree() -> None:
    """A liar knows the key of linear hashes and can forge a vector that fits them."""
    code = CODES[2]
    round_ = _round(code, [TRUE] * 6)
    round_.contributions.offers[1].coded[0] += 1.0  # type: ignore[index]
    row = Claim.of_row(code.matrix[1])
    quorum = Quorum(faults=1)
    assert quorum.disputed(round_) == [row]
    updates = {unit: np.zeros(LENGTH, np.float32) for unit in row.units}
    quorum.computed[row] = computed_value(row, updates, LENGTH)
    assert quorum.contradicted(round_) == {1: row}
    exclude(round_, [1])
    assert not quorum.disputed(round_)
    assert 1 not in round_.rows
    assert 1 not in round_.received


def test_a_drawn_statement_waits_for_the_controller_whoever_agrees() -> None:
    round_, drawn = _round(CODES[0], [TRUE] * 6), Claim((1,))
    quorum = Quorum(drawn=frozenset([drawn]))
    voices = {learner: learner for learner in range(6)}
    assert set(quorum.lacking(round_, voices)) == {drawn}
    quorum.computed[drawn] = _value(TRUE)
    assert not quorum.lacking(round_, voices)
