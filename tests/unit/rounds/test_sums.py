"""Rounds whose targets are sums: exact bits, and no wrong contribution is ever committed."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.rounds.builders import culprit_of, decoded, draw_updates, encode, pad, reason_of

from fullrank.codes import Code, make_code, support
from fullrank.codes.conditions import determines
from fullrank.codes.targets import sum_of_units, sums_of_groups
from fullrank.common.errors import InvalidContribution
from fullrank.common.linear_hash import LinearHash
from fullrank.common.types import FloatArray
from fullrank.common.updates import snap, unit_digest
from fullrank.rounds.decision import Decision, Verdict
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.reports import report_of
from fullrank.rounds.round import Round

SIZES = (5, 3, 5, 4, 2, 5)
KEY = 9
HASHING = LinearHash(5, key=KEY)
GRADIENT_CODE = Code(
    name="gradient",
    matrix=np.kron(np.array([[0.5, 1.0, 0.0], [0.0, 1.0, -1.0], [0.5, 0.0, 1.0]]), np.ones((1, 2))),
    target=sum_of_units(6),
)  # [Tandon17], figure 2, with two units in place of each
CODES = [
    make_code("fractional", rows=9, units=6, tolerance=2),
    make_code("fractional", rows=6, units=6, target=sums_of_groups(3, 2)),
    make_code("cyclic", rows=9, units=6, tolerance=2, target=sum_of_units(6)),
    make_code("mds", rows=9, units=6, target=sums_of_groups(2, 3)),
    make_code("ldgm", rows=10, units=6, seed=2, target=sum_of_units(6)),
    make_code("replication", rows=18, units=6, target=sums_of_groups(3, 2)),
    GRADIENT_CODE,
]
codes = st.sampled_from(CODES)


def open_round(code: Code) -> Round:
    return Round(7, code, target_sizes=(5,) * len(code.target), decoding=ExactDecoding(key=KEY))


def offer_row(
    round_: Round, code: Code, row: int, updates: list[FloatArray], *, flip: int | None = None
) -> Decision:
    for unit in support(code.matrix[row]):
        round_.report(unit, report_of(updates[unit], HASHING), learner=row + 100)
    coded = encode(code, row, updates)
    if flip is not None:
        coded.view(np.uint64)[flip % 5] ^= np.uint64(1 << flip // 5 % 64)
    round_.offer(learner=row + 100, row=row, coded=coded)
    return round_.decide()


def centralised(code: Code, updates: list[FloatArray]) -> bytes:
    return (code.target @ pad(updates) + 0.0).astype(np.float32).tobytes()


def suffice(code: Code, rows: list[int]) -> bool:
    return bool(rows) and bool(determines(code.matrix[rows], code.target))


def shows(code: Code, rows: list[int], wrong: int) -> bool:
    """True if an error in one row changes the decoded sums, or contradicts the other rows."""
    others = [row for row in rows if row != wrong]
    return not suffice(code, others) or bool(determines(code.matrix[others], code.matrix[[wrong]]))


def named(code: Code, rows: list[int], wrong: int) -> bool:
    """True if the rows decode without the wrong one, and without no other unless it shows."""
    return suffice(code, [row for row in rows if row != wrong]) and all(
        shows(code, left, wrong)
        for left in ([row for row in rows if row != absent] for absent in {-1, *rows} - {wrong})
        if suffice(code, left)
    )


@given(code=codes, order=st.permutations(range(18)), seed=st.integers(0, 99))
def test_the_committed_sums_are_the_centralised_bits_whoever_came(
    code: Code, order: list[int], seed: int
) -> None:
    round_, updates, came = open_round(code), draw_updates(seed, SIZES), []
    for row in (row for row in order if row < code.rows):
        decision = offer_row(round_, code, row, updates)
        came.append(row)
        enough = suffice(code, came)
        assert decision.verdict is (Verdict.COMMIT if enough else Verdict.WAIT)
        if enough:
            assert decoded(decision).updates.tobytes() == centralised(code, updates)
            sums = np.asarray(decoded(decision).updates)
            assert decoded(decision).digests == tuple(map(unit_digest, sums))
            expected = [report_of(update, HASHING) for update in updates]
            assert all(
                report in (one, b"")
                for report, one in zip(decoded(decision).reports, expected, strict=True)
            )


@given(code=codes, data=st.data(), flip=st.integers(0, 319), seed=st.integers(0, 99))
def test_a_bit_flipped_in_a_vector_is_never_committed_and_its_learner_is_named(
    code: Code, data: st.DataObject, flip: int, seed: int
) -> None:
    """A single sum also exposes the flip: refusing it needs no redundancy."""
    updates, round_ = draw_updates(seed, SIZES), open_round(code)
    rows = data.draw(st.lists(st.integers(0, code.rows - 1), unique=True, min_size=1))
    assume(suffice(code, rows))
    wrong = data.draw(st.sampled_from(rows))
    before = encode(code, wrong, updates)
    after = before.copy()
    after.view(np.uint64)[flip % 5] ^= np.uint64(1 << flip // 5 % 64)
    assume(np.isfinite(after).all())
    for row in rows:
        decision = offer_row(round_, code, row, updates, flip=flip if row == wrong else None)
    if decision.verdict is Verdict.COMMIT:
        assert decoded(decision).updates.tobytes() == centralised(code, updates)
        assert culprit_of(decision) in (None, wrong + 100)
    visible = bool((np.abs(after - before) > 1e-9).any())
    if visible and named(code, rows, wrong):
        assert (decision.verdict, culprit_of(decision)) == (Verdict.COMMIT, wrong + 100)
    elif suffice(code, [row for row in rows if row != wrong]):
        assert decision.verdict is Verdict.COMMIT
    elif visible:
        assert decision.verdict is not Verdict.COMMIT or culprit_of(decision) is None


def test_a_vector_that_none_of_its_units_explains_is_corrupt_without_redundancy() -> None:
    code, updates = CODES[0], draw_updates(0, SIZES)
    round_ = open_round(code)
    offer_row(round_, code, 0, updates)
    offer_row(round_, code, 3, updates)
    decision = offer_row(round_, code, 6, updates, flip=5 * 40)
    assert decision.verdict is Verdict.CORRUPT
    assert "differ from what learners reported" in reason_of(decision)


@given(code=codes, data=st.data(), seed=st.integers(0, 99))
def test_a_wrong_unit_is_never_committed_once_two_learners_reported_it(
    code: Code, data: st.DataObject, seed: int
) -> None:
    updates, round_ = draw_updates(seed, SIZES), open_round(code)
    wrong_row = data.draw(st.integers(0, code.rows - 1))
    assume(code.load[wrong_row])
    unit = data.draw(st.sampled_from(support(code.matrix[wrong_row])))
    wrong = list(updates)
    wrong[unit] = snap(updates[unit] + np.float32(2.0**-20))
    for row in range(code.rows):
        decision = offer_row(round_, code, row, wrong if row == wrong_row else updates)
        holders = [one for one in range(row + 1) if code.matrix[one, unit]]
        if decision.verdict is Verdict.COMMIT and len(holders) > 1:
            assert decoded(decision).updates.tobytes() == centralised(code, updates)
    if len(holders) > 2 and suffice(code, [row for row in range(code.rows) if row != wrong_row]):
        assert (decision.verdict, culprit_of(decision)) == (Verdict.COMMIT, wrong_row + 100)


@pytest.mark.parametrize("byte", [0, 16, 31])
def test_a_false_report_beside_a_right_vector_convicts_its_author(byte: int) -> None:
    code, updates = CODES[0], draw_updates(3, SIZES)
    round_ = open_round(code)
    for row in (0, 1, 3, 6):
        offer_row(round_, code, row, updates)
    lie = bytearray(report_of(updates[0], HASHING))
    lie[byte] ^= 1
    round_.report(0, bytes(lie), learner=102)
    decision = round_.decide()
    assert (decision.verdict, culprit_of(decision)) == (Verdict.COMMIT, 102)


def test_a_party_that_the_rows_cannot_spare_is_as_suspect_as_the_other() -> None:
    """Of two that disagree the sum needs one: leaving the other one out proves nothing."""
    code = Code(name="dense", matrix=np.array([[1.0, 0.0], [1.0, 1.0]]), target=sum_of_units(2))
    updates = draw_updates(0, SIZES[:2])
    for wrong_row in (0, 1):
        round_ = open_round(code)
        wrong = [snap(updates[0] + np.float32(2.0**-20)), updates[1]]
        for row in range(2):
            decision = offer_row(round_, code, row, wrong if row == wrong_row else updates)
        assert decision.verdict is Verdict.CORRUPT
        assert "disagree on the updates of units [0]" in reason_of(decision)


def test_an_error_that_rounding_removes_names_nobody() -> None:
    """Without any one of three rows the other two give the right sum."""
    updates, round_ = draw_updates(0, SIZES), open_round(GRADIENT_CODE)
    offer_row(round_, GRADIENT_CODE, 0, updates)
    offer_row(round_, GRADIENT_CODE, 1, updates)
    for unit in support(GRADIENT_CODE.matrix[2]):
        round_.report(unit, report_of(updates[unit], HASHING), learner=102)
    coded = encode(GRADIENT_CODE, 2, updates)
    coded[0] += 2.0**-42  # rounding to the grid, 2^-36, removes it
    round_.offer(learner=102, row=2, coded=coded)
    decision = round_.decide()
    assert (decision.verdict, culprit_of(decision)) == (Verdict.COMMIT, None)
    assert "contradict" in reason_of(decision)
    assert decoded(decision).updates.tobytes() == centralised(GRADIENT_CODE, updates)


@pytest.mark.parametrize("byte", [16, 24])
def test_both_words_of_a_hash_prove_a_sum(byte: int) -> None:
    code, updates = GRADIENT_CODE, draw_updates(0, SIZES)
    round_ = open_round(code)
    offer_row(round_, code, 0, updates)
    lie = bytearray(report_of(updates[5], HASHING))
    lie[byte] ^= 1
    for unit in support(code.matrix[1]):
        round_.report(unit, report_of(updates[unit], HASHING), learner=101)
    round_.report(5, bytes(lie), learner=101)  # which no other learner computes
    round_.offer(learner=101, row=1, coded=encode(code, 1, updates))
    assert round_.decide().verdict is Verdict.CORRUPT


def test_a_vector_without_linear_hashes_is_refused() -> None:
    code, updates = CODES[0], draw_updates(0, SIZES)
    round_ = open_round(code)
    for unit in support(code.matrix[0]):
        round_.report(unit, unit_digest(updates[unit]), learner=0)
    with pytest.raises(InvalidContribution, match=r"without the linear hashes of units \[0, 1\]"):
        round_.offer(learner=0, row=0, coded=encode(code, 0, updates))


@given(code=codes, data=st.data(), seed=st.integers(0, 99))
def test_units_computed_alone_complete_whatever_came(
    code: Code, data: st.DataObject, seed: int
) -> None:
    updates, round_ = draw_updates(seed, SIZES), open_round(code)
    for row in data.draw(st.lists(st.integers(0, code.rows - 1), unique=True, max_size=5)):
        offer_row(round_, code, row, updates)
    missing = round_.missing()
    assert bool(missing) != round_.decodable
    for unit in missing:
        row = round_.add(unit)
        round_.report(unit, report_of(updates[unit], HASHING), learner=row + 100)
        round_.offer(learner=row + 100, row=row, coded=pad(updates)[unit])
    decision = round_.decide()
    assert decision.verdict is Verdict.COMMIT
    assert decoded(decision).updates.tobytes() == centralised(code, updates)
