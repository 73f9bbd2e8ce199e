"""An incremental check finds the violations that a check of the whole history finds."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faultlab.checker import Checker
from tests.faultlab.history import EventHistory

from fullrank.runs.events import (
    Acknowledged,
    Assigned,
    Began,
    Committed,
    EpochBegan,
    Event,
    Joined,
    Published,
    Reopened,
    Sent,
    Stored,
    Welcomed,
)

TERMS, EACH = 6, 3
ROWS = ((0, 0), (1, 1))
REFERENCE = [f"d{iteration}" for iteration in range(TERMS * EACH)]


def term(number: int) -> list[Event]:
    """A controller that commits a few iterations and is killed."""
    first = (number - 1) * EACH
    began = Began(run="r", term=number, known=first, resumes_at=first)
    epoch_began = EpochBegan(term=number, epoch=0, matrix=((1.0, 0.0), (0.0, 1.0)))
    joined = [Joined(term=number, learner=learner) for _, learner in ROWS]
    return [
        began,
        *joined,
        epoch_began,
        *(e for i in range(first, first + EACH) for e in round_(number, i)),
    ]


def round_(number: int, iteration: int) -> Iterator[Event]:
    yield Acknowledged(term=number, head=4 * iteration + 4)
    yield Assigned(term=number, epoch=0, iteration=iteration, attempt=0, rows=ROWS)
    yield Committed(
        term=number,
        epoch=0,
        iteration=iteration,
        rows=ROWS,
        digest=f"d{iteration}",
        exact=True,
        culprit=None,
    )
    yield Published(term=number, iteration=iteration)


def learner_of(learner: int, number: int) -> list[Event]:
    first = (number - 1) * EACH
    sent = Sent(
        run="r",
        term=number,
        epoch=0,
        iteration=first,
        attempt=0,
        learner=learner,
        row=learner,
        batch_digest="b",
    )
    welcomed = Welcomed(run="r", term=number, learner=learner)
    return [welcomed, *(replace(sent, iteration=first + each) for each in range(EACH))]


def stored_in(number: int) -> list[Event]:
    first = 4 * (number - 1) * EACH
    heads = range(first, first + 4 * EACH, 4)
    return [
        Reopened(table="t", head=first),
        *(Stored(table="t", first=h, head=h + 4) for h in heads),
    ]


def histories_by_term() -> list[EventHistory]:
    """A run, a piece for each term."""
    return [
        EventHistory(
            controller=term(number),
            replay=stored_in(number),
            learners={f"learner-{j}": learner_of(j, number) for _, j in ROWS},
        )
        for number in range(1, TERMS + 1)
    ]


def found_in(pieces: list[EventHistory]) -> list[str]:
    checker = Checker(REFERENCE)
    return [line for piece in pieces for line in checker.check(piece)]


@given(cuts=st.lists(st.integers(0, 14 * TERMS), max_size=6))
def test_a_sound_run_has_no_violation_however_it_is_cut(cuts: list[int]) -> None:
    whole = [event for piece in histories_by_term() for event in piece.controller]
    ends = [*sorted(cuts), len(whole)]
    parts = [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    replay = [event for piece in histories_by_term() for event in piece.replay]
    pieces = [EventHistory(controller=part) for part in parts]
    assert found_in([replace(pieces[0], replay=replay), *pieces[1:]]) == []
    assert found_in(histories_by_term()) == []


@pytest.mark.parametrize(
    ("place", "kind", "fields", "said"),
    [
        (3, Began, {"known": 8, "resumes_at": 8}, "term 4 knew 8 iterations of 9 committed"),
        (3, Began, {"term": 3}, "term 3 began after term 3"),
        (4, Committed, {"digest": "x"}, "iteration 12 was committed as x, not d12"),
        (4, Acknowledged, {"head": 900}, "position 899 was acknowledged and never stored"),
        (4, Committed, {"iteration": 13}, "iteration 13 was committed in place of 12"),
    ],
)
def test_what_breaks_late_is_named(
    place: int, kind: type[Event], fields: dict[str, object], said: str
) -> None:
    pieces = histories_by_term()
    events = list(pieces[place].controller)
    first = next(index for index, event in enumerate(events) if isinstance(event, kind))
    events[first] = replace(events[first], **fields)  # type: ignore[arg-type]
    pieces[place] = replace(pieces[place], controller=events)
    assert any(said in line for line in found_in(pieces))


def test_terms_that_committed_nothing_do_not_make_it_forget_what_was_committed_before() -> None:
    pieces = histories_by_term()[:3]
    idle = [Began(run="r", term=number, known=9, resumes_at=9) for number in (4, 5, 6)]
    forgetful = Began(run="r", term=7, known=8, resumes_at=8)
    pieces += [EventHistory(controller=[began]) for began in (*idle, forgetful)]
    assert found_in(pieces) == ["nothing is forgotten: term 7 knew 8 iterations of 9 committed"]


def test_replay_that_lost_what_it_acknowledged_long_ago_is_found_out() -> None:
    lost = EventHistory(replay=[Reopened(table="t", head=70)])
    assert found_in([*histories_by_term(), lost]) == [
        "acknowledged is kept: table t: head 70 after 72 was stored"
    ]
