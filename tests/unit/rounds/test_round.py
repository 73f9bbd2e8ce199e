from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rounds.builders import (
    CODE,
    ILL_CONDITIONED,
    LARGE,
    decoded,
    draw_updates,
    encode,
    offer_row,
    open_round,
    pad,
)

from fullrank.codes import make_code, support
from fullrank.codes.decoding.rows import SingleUnitRows
from fullrank.common.errors import InvalidContribution
from fullrank.common.types import Vector
from fullrank.common.updates import unit_digest
from fullrank.rounds.decision import Decision, Decoded, Verdict
from fullrank.rounds.round import Round


def test_it_commits_at_full_rank_and_not_before() -> None:
    round_, updates = open_round(), draw_updates()
    verdicts = [offer_row(round_, CODE, row, updates).verdict for row in (4, 1, 3)]
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
        decision = offer_row(round_, CODE, row, updates)
    assert decision.verdict is Verdict.COMMIT
    assert decoded(decision).updates.tobytes() == pad(updates).astype(np.float32).tobytes()
    assert decoded(decision).digests == tuple(map(unit_digest, updates))
    assert decoded(decision).error_bound == 0.0


def test_a_row_counts_once() -> None:
    round_, coded = open_round(), encode(CODE, 2, draw_updates())
    report_all(round_, 1)
    assert round_.offer(learner=1, row=2, coded=coded)
    assert not round_.offer(learner=1, row=2, coded=coded + 1.0)
    assert not round_.offer(learner=4, row=2, coded=coded)
    assert (round_.received, round_.rank) == ([1], 1)


def test_vectors_in_single_precision_are_checked_in_double() -> None:
    """Parity tells a wrong vector by less than the rounding of float32."""
    code = make_code("replication", rows=3, units=3)
    round_, updates = open_round(code), draw_updates()
    for row in range(3):
        round_.report(row, unit_digest(updates[row]), learner=row)
        coded = encode(code, row, updates).astype(np.float32)
        assert round_.offer(learner=row, row=row, coded=coded)
    vectors = round_.contributions.vectors(range(3))
    assert [vector.dtype for vector in vectors] == [np.float64] * 3
    assert decoded(round_.decide()).updates.tobytes() == pad(updates).astype(np.float32).tobytes()


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
    report_all(round_, 0)
    with pytest.raises(InvalidContribution, match=complaint):
        round_.offer(learner=0, row=0, coded=coded)
    assert (round_.received, round_.rank) == ([], 0)
    assert round_.offer(learner=0, row=0, coded=encode(CODE, 0, draw_updates()))


def test_a_vector_without_the_digests_of_all_its_units_is_refused() -> None:
    round_, updates = open_round(), draw_updates()
    for unit in (0, 2):
        round_.report(unit, unit_digest(updates[unit]), learner=0)
    round_.report(1, unit_digest(updates[1]), learner=1)
    with pytest.raises(InvalidContribution, match=r"without the digests of units \[1\]"):
        round_.offer(learner=0, row=0, coded=encode(CODE, 0, updates))
    assert (round_.received, round_.rank) == ([], 0)
    assert offer_row(round_, CODE, 0, updates).verdict is Verdict.WAIT


def report_all(round_: Round, learner: int) -> None:
    for unit in range(CODE.units):
        round_.report(unit, b"digest", learner=learner)


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
            ahead.precompute()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SingleUnitRows, "updates", lambda *_: None)
            solved = solving.decide()
        assert same(ahead.decide(), solved)


def same(one: Decision, other: Decision) -> bool:
    if not (isinstance(one, Decoded) and isinstance(other, Decoded)):
        return one == other
    same_bits = one.updates.tobytes() == other.updates.tobytes()
    empty = np.empty(0, np.float32)
    return same_bits and replace(one, updates=empty) == replace(other, updates=empty)


def test_an_ill_conditioned_set_is_inexact_and_one_more_row_mends_it() -> None:
    updates = LARGE
    round_ = open_round(ILL_CONDITIONED, (2, 2))
    offer_row(round_, ILL_CONDITIONED, 0, updates)
    inexact = offer_row(round_, ILL_CONDITIONED, 1, updates)
    assert inexact.verdict is Verdict.INEXACT
    assert (
        np.abs(np.asarray(decoded(inexact).updates) - pad(updates)).max()
        <= decoded(inexact).error_bound
        < np.inf
    )
    assert decoded(inexact).error_bound > 0
    exact = offer_row(round_, ILL_CONDITIONED, 2, updates)
    assert exact.verdict is Verdict.COMMIT


@pytest.mark.parametrize("name", ["uncoded", "replication", "mds", "cyclic", "random_sparse"])
@given(data=st.data(), seed=st.integers(0, 99))
def test_units_computed_alone_complete_whatever_came_to_the_same_bits(
    name: str, data: st.DataObject, seed: int
) -> None:
    code, updates = make_code(name, rows=5, units=3), draw_updates(seed)
    round_ = open_round(code)
    came = data.draw(st.lists(st.integers(0, 4), unique=True, max_size=5))
    for row in came:
        decision = offer_row(round_, code, row, updates)
    missing = round_.missing()
    assert len(missing) == 3 - round_.rank
    for unit in missing:
        row = round_.add(unit)
        round_.report(unit, unit_digest(updates[unit]), learner=row)
        round_.offer(learner=row, row=row, coded=pad(updates)[unit])
    for learner, unit in enumerate(range(3)):  # the digests of rows that never came
        round_.report(unit, unit_digest(updates[unit]), learner=learner)
    decision = round_.decide()
    assert decision.verdict is Verdict.COMMIT
    assert decoded(decision).updates.tobytes() == pad(updates).astype(np.float32).tobytes()


def test_what_is_awaited_is_not_missing() -> None:
    round_ = open_round(make_code("uncoded", rows=4, units=3))
    assert round_.missing() == [0, 1, 2]
    assert round_.missing({0, 2}) == [1]
    row = round_.add(1)
    assert round_.missing({0, 2, row}) == []
    assert round_.add(1) == row + 1  # two learners may compute one unit
