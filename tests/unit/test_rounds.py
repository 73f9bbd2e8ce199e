from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import Code, make_code
from fullrank.codes.lone import LoneRows
from fullrank.errors import InvalidContribution
from fullrank.rounds import Decision, Round, Verdict
from fullrank.traffic import support
from fullrank.types import FloatArray, Matrix, Vector
from fullrank.updates import snap, unit_digest

SIZES = (5, 3, 4)
CODE = make_code("mds", rows=5, units=3)
WIDE = [
    snap(each.astype(np.float32)) for each in np.random.default_rng(0).uniform(-0.5, 0.5, (3, 5))
]


def draw_updates(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> list[FloatArray]:
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.uniform(-9, -1)
    return [snap((scale * generator.uniform(-1, 1, size)).astype(np.float32)) for size in sizes]


def pad(updates: list[FloatArray]) -> Matrix:
    """Zero-padded at the end to the longest, shape (M, P)."""
    padded = np.zeros((len(updates), max(map(len, updates))))
    for row, update in zip(padded, updates, strict=True):
        row[: len(update)] = update
    return padded


def encode(code: Code, row: int, updates: list[FloatArray]) -> Vector:
    return np.asarray(code.matrix[row] @ pad(updates))


def hand_in(round_: Round, code: Code, row: int, updates: list[FloatArray]) -> Decision:
    """What an honest learner of this row does."""
    for unit in support(code.matrix[row]):
        round_.report(unit, unit_digest(updates[unit]), learner=row + 100)
    round_.offer(learner=row + 100, row=row, coded=encode(code, row, updates))
    return round_.decide()


def open_round(code: Code = CODE, sizes: tuple[int, ...] = SIZES) -> Round:
    return Round(7, code, unit_sizes=sizes)


def test_it_commits_at_full_rank_and_not_before() -> None:
    round_, updates = open_round(), draw_updates()
    verdicts = [hand_in(round_, CODE, row, updates).verdict for row in (4, 1, 3)]
    assert verdicts == [Verdict.WAIT, Verdict.WAIT, Verdict.COMMIT]
    assert (round_.rank, round_.decodable, round_.rows) == (3, True, frozenset({1, 3, 4}))
    assert round_.received == [104, 101, 103]
    assert 1.0 <= round_.condition < 1e3


@given(order=st.permutations(range(CODE.rows)), count=st.integers(3, 5), seed=st.integers(0, 99))
def test_the_committed_bits_do_not_depend_on_who_came_when(
    order: list[int], count: int, seed: int
) -> None:
    round_, updates = open_round(), draw_updates(seed)
    for row in order[:count]:
        decision = hand_in(round_, CODE, row, updates)
    assert decision.verdict is Verdict.COMMIT
    assert decision.updates is not None
    assert decision.updates.tobytes() == pad(updates).astype(np.float32).tobytes()
    assert decision.digests == tuple(map(unit_digest, updates))
    assert decision.error_bound == 0.0


def test_a_row_counts_once() -> None:
    round_, coded = open_round(), encode(CODE, 2, draw_updates())
    assert round_.offer(learner=1, row=2, coded=coded)
    assert not round_.offer(learner=1, row=2, coded=coded + 1.0)
    assert not round_.offer(learner=4, row=2, coded=coded)
    assert (round_.received, round_.rank) == ([1], 1)


@pytest.mark.parametrize(
    ("coded", "complaint"),
    [
        (np.zeros(4), r"row 0 has shape \(4,\), expected \(5,\)"),
        (np.zeros((5, 1)), "shape"),
        (np.array([0, 0, np.nan, 0, 0]), "not finite"),
        (np.array([0, 0, np.inf, 0, 0]), "not finite"),
    ],
)
def test_an_impossible_vector_is_refused_and_leaves_no_trace(coded: Vector, complaint: str) -> None:
    round_ = open_round()
    with pytest.raises(InvalidContribution, match=complaint):
        round_.offer(learner=0, row=0, coded=coded)
    assert (round_.received, round_.rank) == ([], 0)
    assert round_.offer(learner=0, row=0, coded=encode(CODE, 0, draw_updates()))


def test_it_waits_for_the_report_of_every_unit() -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(3):
        round_.offer(learner=row, row=row, coded=encode(CODE, row, updates))
    for unit in (0, 2):
        round_.report(unit, unit_digest(updates[unit]), learner=0)
    assert round_.decide().verdict is Verdict.WAIT
    round_.report(1, unit_digest(updates[1]), learner=0)
    assert round_.decide().verdict is Verdict.COMMIT


@given(
    name=st.sampled_from(["uncoded", "replication", "ldgm"]),
    order=st.permutations(range(6)),
    prepared=st.sets(st.integers(0, 5)),
    damaged=st.none() | st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 63)),
    seed=st.integers(0, 99),
)
def test_units_decoded_as_they_come_alone_change_no_decision(
    name: str,
    order: list[int],
    prepared: set[int],
    damaged: tuple[int, int, int] | None,
    seed: int,
) -> None:
    code, updates = make_code(name, rows=6, units=3), draw_updates(seed)
    ahead, solving = open_round(code), open_round(code)
    for count, row in enumerate(each for each in order if code.matrix[each].any()):
        coded = encode(code, row, updates)
        if damaged is not None and damaged[0] == row:
            coded.view(np.uint64)[damaged[1]] ^= np.uint64(1 << damaged[2])
        if not np.isfinite(coded).all():
            return
        for round_ in (ahead, solving):
            for unit in support(code.matrix[row]):
                round_.report(unit, unit_digest(updates[unit]), learner=row)
            round_.offer(learner=row, row=row, coded=coded)
        if count in prepared:
            ahead.prepare()
            assert not ahead.preparable
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LoneRows, "updates", lambda *_: None)
            solved = solving.decide()
        assert same(ahead.decide(), solved)


def same(one: Decision, other: Decision) -> bool:
    bits = [None if each.updates is None else each.updates.tobytes() for each in (one, other)]
    return bits[0] == bits[1] and replace(one, updates=None) == replace(other, updates=None)


def test_a_vector_changed_in_flight_is_corrupt_without_redundancy() -> None:
    round_, updates = open_round(), draw_updates()
    hand_in(round_, CODE, 0, updates)
    hand_in(round_, CODE, 1, updates)
    damaged = encode(CODE, 2, updates)
    damaged[1] += 2.0**-20
    for unit in support(CODE.matrix[2]):
        round_.report(unit, unit_digest(updates[unit]), learner=2)
    round_.offer(learner=2, row=2, coded=damaged)
    decision = round_.decide()
    assert decision.verdict is Verdict.CORRUPT
    assert decision.updates is None
    assert decision.reason


@given(
    code=st.sampled_from(["mds", "cyclic", "random_sparse", "ldgm"]),
    culprit=st.integers(0, 7),
    position=st.integers(0, 4),
    bit=st.integers(0, 63),
)
def test_a_bit_flipped_in_one_vector_is_without_effect_and_its_learner_is_named(
    code: str, culprit: int, position: int, bit: int
) -> None:
    params = {"tolerance": 4} if code == "cyclic" else {}
    made, updates = make_code(code, rows=8, units=3, **params), draw_updates()
    without = [row for row in range(8) if row != culprit]
    round_ = open_round(made)
    for row in without:
        hand_in(round_, made, row, updates)
    for unit in support(made.matrix[culprit]):
        round_.report(unit, unit_digest(updates[unit]), learner=culprit + 100)
    damaged = encode(made, culprit, updates)
    damaged.view(np.uint64)[position] ^= np.uint64(1 << bit)
    try:
        round_.offer(learner=culprit + 100, row=culprit, coded=damaged)
    except InvalidContribution:  # not finite any more: it never gets in
        return
    decision = round_.decide()
    if np.linalg.matrix_rank(made.matrix[without]) < 3:
        assert decision.verdict is Verdict.CORRUPT or decision.culprit is None
        return
    assert decision.verdict is Verdict.COMMIT
    assert decision.updates is not None
    assert decision.updates.tobytes() == pad(updates).astype(np.float32).tobytes()
    assert decision.culprit in (None, culprit + 100)
    if bit > 30:  # far above rounding, which has no effect
        same = np.array_equal(damaged, encode(made, culprit, updates))  # -0.0 is 0.0
        assert decision.culprit == (None if same else culprit + 100)


def test_an_error_below_rounding_is_without_effect_and_names_nobody() -> None:
    code, updates = make_code("replication", rows=6, units=3), WIDE
    round_ = open_round(code, (5, 5, 5))
    for row in range(5):
        hand_in(round_, code, row, updates)
    round_.report(2, unit_digest(updates[2]), learner=105)
    damaged = encode(code, 5, updates)
    damaged[1] = np.nextafter(damaged[1], 1.0)
    round_.offer(learner=105, row=5, coded=damaged)
    decision = round_.decide()
    assert (decision.verdict, decision.culprit) == (Verdict.COMMIT, None)
    assert decision.digests == tuple(map(unit_digest, updates))


@pytest.mark.parametrize("value", [1e300, -1e300, 1e60])
def test_a_vector_beyond_every_update_is_corrupt_and_never_inexact(value: float) -> None:
    code = make_code("cyclic", rows=4, units=3)
    round_ = open_round(code, (5, 5, 5))
    for row in (0, 1):
        hand_in(round_, code, row, WIDE)
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
        decision = hand_in(round_, CODE, row, wrong if row == culprit else updates)
        if decision.verdict is Verdict.COMMIT:
            assert decision.culprit in (None, culprit + 100)
    assert decision.verdict is Verdict.COMMIT
    assert decision.culprit == culprit + 100
    assert decision.digests == tuple(map(unit_digest, updates))
    assert "disagree" in decision.reason


def test_learners_that_disagree_are_corrupt_until_it_is_certain_who_is_wrong() -> None:
    round_, updates = open_round(), draw_updates()
    wrong = [updates[0], snap(updates[1] + np.float32(2.0**-20)), updates[2]]
    verdicts = [hand_in(round_, CODE, row, updates) for row in (0, 1)]
    verdicts += [hand_in(round_, CODE, 2, wrong), hand_in(round_, CODE, 3, updates)]
    assert [each.verdict for each in verdicts] == [
        *[Verdict.WAIT] * 2,
        Verdict.CORRUPT,
        Verdict.COMMIT,
    ]
    assert "units [1]" in verdicts[2].reason
    assert [each.culprit for each in verdicts] == [None, None, None, 102]


def test_of_two_that_disagree_nobody_is_named() -> None:
    code = make_code("cyclic", rows=4, units=3, tolerance=1)
    updates = draw_updates()
    [unit] = [unit for unit in support(code.matrix[0]) if unit in support(code.matrix[1])][:1]
    wrong = list(updates)
    wrong[unit] = snap(updates[unit] + np.float32(2.0**-20))
    for order in ((0, 1, 2), (1, 2, 0), (0, 2, 3, 1)):
        round_ = open_round(code)
        decisions = [hand_in(round_, code, row, wrong if row == 0 else updates) for row in order]
        assert decisions[-1].culprit in (None, 100)
        assert decisions[-1].verdict is Verdict.CORRUPT or decisions[-1].culprit == 100


def test_a_false_report_alone_convicts_its_author() -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(3):
        hand_in(round_, CODE, row, updates)
    assert round_.decide().verdict is Verdict.COMMIT
    round_.report(2, b"another digest16", learner=99)  # of a learner whose row was not needed
    decision = round_.decide()
    assert (decision.verdict, decision.culprit) == (Verdict.COMMIT, 99)


def test_two_that_agree_on_the_same_wrong_bits_outvote_one() -> None:
    """What is promised rests on one wrong learner at most; this is what two can do."""
    round_, updates = open_round(), draw_updates()
    wrong = [updates[0], snap(updates[1] + np.float32(2.0**-20)), updates[2]]
    for row in (0, 1, 2):
        hand_in(round_, CODE, row, wrong)
    decision = hand_in(round_, CODE, 3, updates)
    assert (decision.verdict, decision.culprit) == (Verdict.COMMIT, 103)


def test_different_minibatches_are_corrupt() -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(3):
        for unit in support(CODE.matrix[row]):
            round_.report(unit, unit_digest(updates[unit]), learner=row)
        coded = encode(CODE, row, updates)
        round_.offer(learner=row, row=row, coded=coded, batch_digest=b"ab"[row % 2 : row % 2 + 1])
    assert "minibatches" in round_.decide().reason


ILL_CONDITIONED = Code(name="ill", matrix=np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-24], [1.0, 0.0]]))
LARGE = [snap(np.array(entries, np.float32)) for entries in ([0.3, -0.4], [0.1, 0.45])]


def test_an_ill_conditioned_set_is_inexact_and_one_more_row_mends_it() -> None:
    updates = LARGE
    round_ = open_round(ILL_CONDITIONED, (2, 2))
    hand_in(round_, ILL_CONDITIONED, 0, updates)
    inexact = hand_in(round_, ILL_CONDITIONED, 1, updates)
    assert inexact.verdict is Verdict.INEXACT
    assert inexact.updates is not None
    assert np.abs(inexact.updates - pad(updates)).max() <= inexact.error_bound < np.inf
    assert inexact.error_bound > 0
    exact = hand_in(round_, ILL_CONDITIONED, 2, updates)
    assert exact.verdict is Verdict.COMMIT


NEARLY_ONE = Code(name="nearly one", matrix=np.vander([1.0, 1.0001, 1.0002], 6).T)


@pytest.mark.parametrize(
    ("rows", "auditable", "nameable"),
    [((0, 1, 2), 0, 0), ((0, 1, 2, 5), 4, 0), ((0, 1, 2, 3, 5), 5, 5)],
)
def test_an_inexact_result_says_whose_wrong_vector_would_show(
    rows: tuple[int, ...], auditable: int, nameable: int
) -> None:
    round_, updates = open_round(NEARLY_ONE, (5, 5, 5)), WIDE
    for row in rows:
        decision = hand_in(round_, NEARLY_ONE, row, updates)
    assert decision.verdict is Verdict.INEXACT
    assert (len(decision.auditable), len(decision.nameable)) == (auditable, nameable)


def test_a_wrong_vector_that_no_digest_can_prove_is_left_out_and_its_learner_named() -> None:
    updates, round_ = WIDE, open_round(NEARLY_ONE, (5, 5, 5))
    for row in (0, 1, 2, 3):
        hand_in(round_, NEARLY_ONE, row, updates)
    for unit, update in enumerate(updates):
        round_.report(unit, unit_digest(update), learner=105)
    damaged = encode(NEARLY_ONE, 5, updates)
    damaged[2] *= 1.0 + 1e-6
    round_.offer(learner=105, row=5, coded=damaged)
    decision = round_.decide()
    assert (decision.verdict, decision.culprit) == (Verdict.INEXACT, 105)
    assert decision.updates is not None
    assert np.abs(decision.updates - pad(updates)).max() <= decision.error_bound


def test_learners_that_disagree_never_pass_as_inexact() -> None:
    updates = LARGE
    round_ = open_round(ILL_CONDITIONED, (2, 2))
    hand_in(round_, ILL_CONDITIONED, 0, updates)
    hand_in(round_, ILL_CONDITIONED, 1, updates)
    round_.report(0, b"another digest16", learner=102)
    assert round_.decide().verdict is not Verdict.COMMIT


def test_without_vectors_only_the_rank_counts() -> None:
    round_ = Round(0, CODE)
    for row in (0, 2, 4):
        assert not round_.decodable
        round_.offer(learner=row, row=row)
    assert round_.decodable


@pytest.mark.parametrize("name", ["uncoded", "replication", "mds", "cyclic", "random_sparse"])
@given(data=st.data(), seed=st.integers(0, 99))
def test_units_computed_alone_complete_whatever_came_to_the_same_bits(
    name: str, data: st.DataObject, seed: int
) -> None:
    code, updates = make_code(name, rows=5, units=3), draw_updates(seed)
    round_ = open_round(code)
    came = data.draw(st.lists(st.integers(0, 4), unique=True, max_size=5))
    for row in came:
        decision = hand_in(round_, code, row, updates)
    missing = round_.missing()
    assert len(missing) == 3 - round_.rank
    for unit in missing:
        row = round_.add(unit)
        assert round_.coefficients(row).tolist() == np.eye(3)[unit].tolist()
        round_.report(unit, unit_digest(updates[unit]), learner=row)
        round_.offer(learner=row, row=row, coded=pad(updates)[unit])
    for learner, unit in enumerate(range(3)):  # the digests of rows that never came
        round_.report(unit, unit_digest(updates[unit]), learner=learner)
    decision = round_.decide()
    assert decision.verdict is Verdict.COMMIT
    assert decision.updates is not None
    assert decision.updates.tobytes() == pad(updates).astype(np.float32).tobytes()


def test_what_is_awaited_is_not_missing() -> None:
    round_ = open_round(make_code("uncoded", rows=4, units=3))
    assert round_.missing() == [0, 1, 2]
    assert round_.missing({0, 2}) == [1]
    row = round_.add(1)
    assert round_.missing({0, 2, row}) == []
    assert round_.add(1) == row + 1  # two learners may compute one unit


def test_a_wrong_vector_of_a_row_that_was_added_is_found_and_left_out() -> None:
    round_, updates = open_round(), draw_updates()
    for row in (0, 1, 2, 3):
        hand_in(round_, CODE, row, updates)
    added = round_.add(1)
    wrong = pad(updates)[1]
    wrong[0] += 2.0**-20
    round_.report(1, unit_digest(updates[1]), learner=7)
    round_.offer(learner=7, row=added, coded=wrong)
    decision = round_.decide()
    assert (decision.verdict, decision.culprit) == (Verdict.COMMIT, 7)
    assert decision.updates is not None
    assert decision.updates.tobytes() == pad(updates).astype(np.float32).tobytes()
