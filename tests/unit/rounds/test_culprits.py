"""Exactly the wrong learner is named."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rounds.builders import (
    CODE,
    ILL_CONDITIONED,
    LARGE,
    culprit_of,
    decoded,
    draw_updates,
    encode,
    offer_row,
    open_round,
    pad,
    reason_of,
)

from fullrank.codes import Code, make_code, support
from fullrank.common.errors import InvalidContribution
from fullrank.common.updates import snap, unit_digest
from fullrank.rounds.decision import Verdict

NEARLY_ONE = Code(name="nearly one", matrix=np.vander([1.0, 1.0001, 1.0002], 6).T)
WIDE = [
    snap(each.astype(np.float32)) for each in np.random.default_rng(0).uniform(-0.5, 0.5, (3, 5))
]


def test_a_vector_changed_in_flight_is_corrupt_without_redundancy() -> None:
    round_, updates = open_round(), draw_updates()
    offer_row(round_, CODE, 0, updates)
    offer_row(round_, CODE, 1, updates)
    damaged = encode(CODE, 2, updates)
    damaged[1] += 2.0**-20
    for unit in support(CODE.matrix[2]):
        round_.report(unit, unit_digest(updates[unit]), learner=2)
    round_.offer(learner=2, row=2, coded=damaged)
    decision = round_.decide()
    assert decision.verdict is Verdict.CORRUPT
    assert reason_of(decision)


@given(
    code=st.sampled_from(["mds", "cyclic", "random_sparse", "ldgm"]),
    culprit=st.integers(0, 7),
    position=st.integers(0, 4),
    bit=st.integers(0, 63),
)
def test_a_bit_flipped_in_one_vector_is_without_effect_and_its_learner_is_named(
    code: str, culprit: int, position: int, bit: int
) -> None:
    params: dict[str, Any] = {"tolerance": 4} if code == "cyclic" else {}
    made, updates = make_code(code, rows=8, units=3, **params), draw_updates()
    without = [row for row in range(8) if row != culprit]
    round_ = open_round(made)
    for row in without:
        offer_row(round_, made, row, updates)
    for unit in support(made.matrix[culprit]):
        round_.report(unit, unit_digest(updates[unit]), learner=culprit + 100)
    damaged = encode(made, culprit, updates)
    damaged.view(np.uint64)[position] ^= np.uint64(1 << bit)
    try:
        round_.offer(learner=culprit + 100, row=culprit, coded=damaged)
    except InvalidContribution:  # no longer finite: it never gets in
        return
    decision = round_.decide()
    if np.linalg.matrix_rank(made.matrix[without]) < 3:
        assert decision.verdict is Verdict.CORRUPT or culprit_of(decision) is None
        return
    assert decision.verdict is Verdict.COMMIT
    assert decoded(decision).updates.tobytes() == pad(updates).astype(np.float32).tobytes()
    assert culprit_of(decision) in (None, culprit + 100)
    if bit > 30:  # far above rounding, which has no effect
        same = np.array_equal(damaged, encode(made, culprit, updates))  # -0.0 is 0.0
        assert culprit_of(decision) == (None if same else culprit + 100)


def test_an_error_below_rounding_is_without_effect_and_names_nobody() -> None:
    code, updates = make_code("replication", rows=6, units=3), WIDE
    round_ = open_round(code, (5, 5, 5))
    for row in range(5):
        offer_row(round_, code, row, updates)
    round_.report(2, unit_digest(updates[2]), learner=105)
    damaged = encode(code, 5, updates)
    damaged[1] = np.nextafter(damaged[1], 1.0)
    round_.offer(learner=105, row=5, coded=damaged)
    decision = round_.decide()
    assert (decision.verdict, culprit_of(decision)) == (Verdict.COMMIT, None)
    assert decoded(decision).digests == tuple(map(unit_digest, updates))


@pytest.mark.parametrize("value", [1e300, -1e300, 1e60])
def test_a_vector_beyond_every_update_is_corrupt_and_never_inexact(value: float) -> None:
    code = make_code("cyclic", rows=4, units=3)
    round_ = open_round(code, (5, 5, 5))
    for row in (0, 1):
        offer_row(round_, code, row, WIDE)
    for unit in support(code.matrix[2]):
        round_.report(unit, unit_digest(WIDE[unit]), learner=102)
    damaged = encode(code, 2, WIDE)
    damaged[0] = value
    round_.offer(learner=102, row=2, coded=damaged)
    assert round_.decide().verdict is Verdict.CORRUPT


@given(seed=st.integers(0, 99), culprit=st.integers(0, 4), unit=st.integers(0, 2))
def test_a_wrong_computation_is_named_where_others_computed_the_unit(
    seed: int, culprit: int, unit: int
) -> None:
    round_, updates = open_round(), draw_updates(seed)
    unit = support(CODE.matrix[culprit])[unit % len(support(CODE.matrix[culprit]))]
    wrong = list(updates)
    wrong[unit] = snap(updates[unit] + np.float32(2.0**-20))
    for row in range(5):
        decision = offer_row(round_, CODE, row, wrong if row == culprit else updates)
        if decision.verdict is Verdict.COMMIT:
            assert culprit_of(decision) in (None, culprit + 100)
    assert decision.verdict is Verdict.COMMIT
    assert culprit_of(decision) == culprit + 100
    assert decoded(decision).digests == tuple(map(unit_digest, updates))
    assert "disagree" in reason_of(decision)


def test_learners_that_disagree_are_corrupt_until_it_is_certain_who_is_wrong() -> None:
    round_, updates = open_round(), draw_updates()
    wrong = [updates[0], snap(updates[1] + np.float32(2.0**-20)), updates[2]]
    verdicts = [offer_row(round_, CODE, row, updates) for row in (0, 1)]
    verdicts += [offer_row(round_, CODE, 2, wrong), offer_row(round_, CODE, 3, updates)]
    assert [each.verdict for each in verdicts] == [
        *[Verdict.WAIT] * 2,
        Verdict.CORRUPT,
        Verdict.COMMIT,
    ]
    assert "units [1]" in reason_of(verdicts[2])
    assert [culprit_of(each) for each in verdicts] == [None, None, None, 102]


def test_of_two_that_disagree_nobody_is_named() -> None:
    code = make_code("cyclic", rows=4, units=3, tolerance=1)
    updates = draw_updates()
    [unit] = [unit for unit in support(code.matrix[0]) if unit in support(code.matrix[1])][:1]
    wrong = list(updates)
    wrong[unit] = snap(updates[unit] + np.float32(2.0**-20))
    for order in ((0, 1, 2), (1, 2, 0), (0, 2, 3, 1)):
        round_ = open_round(code)
        decisions = [offer_row(round_, code, row, wrong if row == 0 else updates) for row in order]
        assert culprit_of(decisions[-1]) in (None, 100)
        assert decisions[-1].verdict is Verdict.CORRUPT or culprit_of(decisions[-1]) == 100


def test_a_false_report_alone_convicts_its_author() -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(3):
        offer_row(round_, CODE, row, updates)
    assert round_.decide().verdict is Verdict.COMMIT
    round_.report(2, b"another digest16", learner=99)  # of a learner whose row was not needed
    decision = round_.decide()
    assert (decision.verdict, culprit_of(decision)) == (Verdict.COMMIT, 99)


def test_two_that_agree_on_the_same_wrong_bits_outvote_one() -> None:
    """The guarantee assumes at most one wrong learner; two can outvote one."""
    round_, updates = open_round(), draw_updates()
    wrong = [updates[0], snap(updates[1] + np.float32(2.0**-20)), updates[2]]
    for row in (0, 1, 2):
        offer_row(round_, CODE, row, wrong)
    decision = offer_row(round_, CODE, 3, updates)
    assert (decision.verdict, culprit_of(decision)) == (Verdict.COMMIT, 103)


def test_different_minibatches_are_corrupt() -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(3):
        for unit in support(CODE.matrix[row]):
            round_.report(unit, unit_digest(updates[unit]), learner=row)
        coded = encode(CODE, row, updates)
        round_.offer(learner=row, row=row, coded=coded, batch_digest=b"ab"[row % 2 : row % 2 + 1])
    assert "minibatches" in reason_of(round_.decide())


def test_a_wrong_vector_that_no_digest_can_prove_is_left_out_and_its_learner_named() -> None:
    updates, round_ = WIDE, open_round(NEARLY_ONE, (5, 5, 5))
    for row in (0, 1, 2, 3):
        offer_row(round_, NEARLY_ONE, row, updates)
    for unit, update in enumerate(updates):
        round_.report(unit, unit_digest(update), learner=105)
    damaged = encode(NEARLY_ONE, 5, updates)
    damaged[2] *= 1.0 + 1e-6
    round_.offer(learner=105, row=5, coded=damaged)
    decision = round_.decide()
    assert (decision.verdict, culprit_of(decision)) == (Verdict.INEXACT, 105)
    committed = np.asarray(decoded(decision).updates)
    assert np.abs(committed - pad(updates)).max() <= decoded(decision).error_bound


def test_learners_that_disagree_never_pass_as_inexact() -> None:
    updates = LARGE
    round_ = open_round(ILL_CONDITIONED, (2, 2))
    offer_row(round_, ILL_CONDITIONED, 0, updates)
    offer_row(round_, ILL_CONDITIONED, 1, updates)
    round_.report(0, b"another digest16", learner=102)
    assert round_.decide().verdict is Verdict.CORRUPT
