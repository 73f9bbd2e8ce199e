import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import Code, make_code
from fullrank.errors import InvalidContribution
from fullrank.rounds import Decision, Round, Verdict
from fullrank.traffic import support
from fullrank.types import FloatArray, Matrix, Vector
from fullrank.updates import snap, unit_digest

SIZES = (5, 3, 4)
CODE = make_code("mds", rows=5, units=3)


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
        round_.report(unit, unit_digest(updates[unit]))
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
        round_.report(unit, unit_digest(updates[unit]))
    assert round_.decide().verdict is Verdict.WAIT
    round_.report(1, unit_digest(updates[1]))
    assert round_.decide().verdict is Verdict.COMMIT


def test_a_vector_changed_in_flight_is_corrupt_without_redundancy() -> None:
    round_, updates = open_round(), draw_updates()
    hand_in(round_, CODE, 0, updates)
    hand_in(round_, CODE, 1, updates)
    damaged = encode(CODE, 2, updates)
    damaged[1] += 2.0**-20
    for unit in support(CODE.matrix[2]):
        round_.report(unit, unit_digest(updates[unit]))
    round_.offer(learner=2, row=2, coded=damaged)
    decision = round_.decide()
    assert decision.verdict is Verdict.CORRUPT
    assert decision.updates is None
    assert decision.reason


@pytest.mark.parametrize("column", range(3))
def test_a_vector_changed_in_flight_is_corrupt_with_redundancy(column: int) -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(4):
        hand_in(round_, CODE, row, updates)
    damaged = encode(CODE, 4, updates)
    damaged[column] = -damaged[column] - 2.0**-30
    round_.offer(learner=4, row=4, coded=damaged)
    assert round_.decide().verdict is Verdict.CORRUPT


def test_learners_that_disagree_on_a_unit_are_corrupt() -> None:
    round_, updates = open_round(), draw_updates()
    wrong = [updates[0], snap(updates[1] + np.float32(2.0**-20)), updates[2]]
    for row in (0, 1):
        hand_in(round_, CODE, row, updates)
    decision = hand_in(round_, CODE, 2, wrong)
    assert decision.verdict is Verdict.CORRUPT
    assert "units [1]" in decision.reason


def test_a_report_alone_can_convict() -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(3):
        hand_in(round_, CODE, row, updates)
    assert round_.decide().verdict is Verdict.COMMIT
    round_.report(2, b"another digest16")  # from a learner whose row was not needed
    assert round_.decide().verdict is Verdict.CORRUPT


def test_different_minibatches_are_corrupt() -> None:
    round_, updates = open_round(), draw_updates()
    for row in range(3):
        for unit in support(CODE.matrix[row]):
            round_.report(unit, unit_digest(updates[unit]))
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


def test_learners_that_disagree_never_pass_as_inexact() -> None:
    updates = LARGE
    round_ = open_round(ILL_CONDITIONED, (2, 2))
    hand_in(round_, ILL_CONDITIONED, 0, updates)
    hand_in(round_, ILL_CONDITIONED, 1, updates)
    round_.report(0, b"another digest16")
    assert round_.decide().verdict is Verdict.CORRUPT


def test_without_vectors_only_the_rank_counts() -> None:
    round_ = Round(0, CODE)
    for row in (0, 2, 4):
        assert not round_.decodable
        round_.offer(learner=row, row=row)
    assert round_.decodable
