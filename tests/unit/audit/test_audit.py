"""Late digests count, contradictions surface, and units that two learners agree on are audited."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.audit.ledger import CONTROLLER, WINDOW, Holders, Ledger

TRUE = (b"zero", b"one", b"two")


def reports(*units: int) -> dict[int, bytes]:
    return {unit: TRUE[unit] for unit in units}


def ledger(*iterations: int) -> Ledger:
    made = Ledger()
    for iteration in iterations:
        made.commit(iteration, TRUE, {0: reports(0, 1), 1: reports(2)})
    return made


def test_an_iteration_is_audited_when_every_unit_was_found_twice() -> None:
    made = ledger(4, 5)
    made.report(4, 2, reports(0, 1))
    assert made.audited_before(6) is None
    made.report(4, CONTROLLER, reports(2))
    assert (made.audited_before(6), made.audited_before(5), made.audited_before(4)) == (4, 4, None)
    assert made.dispute() is None


def test_the_same_learner_counts_once() -> None:
    made = ledger(4)
    for _ in range(2):
        made.report(4, 0, reports(0, 1))
        made.report(4, 1, reports(2))
    assert made.audited_before(5) is None


def test_a_late_digest_that_contradicts_is_a_dispute_between_all_who_reported() -> None:
    made = ledger(4, 5)
    made.report(4, 3, {1: b"other", 2: TRUE[2]})
    dispute = made.dispute()
    assert dispute is not None
    assert (dispute.iteration, dispute.units) == (4, (1,))
    assert dispute.reports == {0: {1: TRUE[1]}, 3: {1: b"other"}}
    assert dispute.parties == {0, 3}


def test_a_settled_dispute_does_not_come_again() -> None:
    made = ledger(4)
    made.report(4, 3, {1: b"other"})
    made.settle(4)
    made.report(4, 2, {1: b"another"})
    assert made.dispute() is None
    assert made.audited_before(5) is None


def test_an_iteration_under_dispute_is_not_audited() -> None:
    made = ledger(4)
    made.report(4, 3, {0: b"other", 1: TRUE[1], 2: TRUE[2]})  # every unit was computed twice
    assert made.dispute() is not None
    assert made.audited_before(5) is None


def test_a_lie_about_another_unit_of_a_settled_iteration_is_a_dispute_again() -> None:
    made = ledger(4)
    made.report(4, 3, {1: b"other"})
    made.settle(4)
    made.report(4, 2, {2: b"true after all"})
    dispute = made.dispute()
    assert dispute is not None
    assert dispute.units == (2,)
    assert dispute.parties == {1, 2}


def test_a_learner_that_says_both_is_held_to_what_deviates() -> None:
    for said in ((b"other", TRUE[1]), (TRUE[1], b"other")):
        made = ledger(4)
        for report in said:
            made.report(4, 3, {1: report})
        dispute = made.dispute()
        assert dispute is not None
        assert dispute.reports[3] == {1: b"other"}


def test_the_oldest_dispute_comes_first() -> None:
    made = ledger(4, 5, 6)
    for iteration in (6, 4):
        made.report(iteration, 3, {0: b"other"})
    found = []
    while (dispute := made.dispute()) is not None:
        found.append(dispute.iteration)
        made.settle(dispute.iteration)
    assert found == [4, 6]


def test_a_report_that_was_left_out_before_the_commit_is_a_dispute() -> None:
    made = Ledger()
    made.commit(4, TRUE, {0: reports(0, 1, 2), 1: {2: b"other"}})
    dispute = made.dispute()
    assert dispute is not None
    assert dispute.parties == {0, 1}


def test_where_the_commit_was_not_exact_learners_are_compared_with_one_another() -> None:
    made = Ledger()
    made.commit(4, (), {0: reports(0, 1), 1: reports(1, 2)})
    assert made.dispute() is None
    made.report(4, 2, {2: b"other"})
    dispute = made.dispute()
    assert dispute is not None
    assert dispute.parties == {1, 2}
    assert made.audited_before(5) is None


def test_iterations_that_are_not_kept_are_passed_over() -> None:
    made = ledger(*range(WINDOW + 1))
    made.report(0, 3, {0: b"other"})
    made.report(WINDOW + 9, 3, {0: b"other"})
    assert made.dispute() is None
    made.report(1, 3, {0: b"other"})
    assert made.dispute() is not None


def test_a_dispute_that_was_never_settled_is_forgotten_with_its_iteration() -> None:
    made = ledger(0)
    made.report(0, 3, {0: b"other"})
    for iteration in range(1, WINDOW + 1):
        made.commit(iteration, TRUE, {})
    assert made.dispute() is None


def test_awaited_are_those_who_have_not_reported_all_they_hold() -> None:
    made, matrix = Ledger(), np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], float)
    rows = {row: (row, b"") for row in range(3)} | {3: (0, b"")}
    holders = Holders(epoch=1, matrix=matrix, extra_rows={3: 2}, rows=rows)
    made.commit(4, TRUE, {0: reports(0, 1, 2), 1: reports(2)}, holders)
    assert made.awaited(4) == {1, 2}
    made.report(4, 1, reports(1))
    assert made.awaited(4) == {2}
    assert made.awaited(5) == set()


@given(
    said=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans()), min_size=1, max_size=30
    )
)
def test_no_dispute_among_those_who_are_right(said: list[tuple[int, int, bool]]) -> None:
    made = ledger(4)
    for learner, unit, wrong in said:
        made.report(4, learner, {unit: b"other" if wrong else TRUE[unit]})
    assert (made.dispute() is not None) == any(wrong for _, _, wrong in said)
