"""The checker accepts a sound history and names the fault of any other."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.faultlab.history import EventHistory
from tests.faultlab.invariants import violations

from fullrank.runs.events import (
    Acknowledged,
    Added,
    Assigned,
    Began,
    Committed,
    EpochBegan,
    Event,
    Joined,
    Left,
    Published,
    Reopened,
    Sent,
    Stored,
    TakenBack,
    Truncated,
    Welcomed,
)

MATRIX = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
REFERENCE = ("d0", "d1", "d2")


def committed(iteration: int, *, term: int, culprit: int | None = None) -> Committed:
    return Committed(
        term=term,
        epoch=0,
        iteration=iteration,
        rows=((2, 2), (0, 0)),
        digest=f"d{iteration}",
        exact=True,
        culprit=culprit,
    )


def iteration(number: int, *, term: int, culprit: int | None = None) -> list[Event]:
    rows = ((0, 0), (1, 1), (2, 2)) if culprit is None else ((0, 0), (2, 2))
    assigned = Assigned(term=term, epoch=0, iteration=number, attempt=0, rows=rows)
    return [
        Acknowledged(term=term, head=4 * (number + 1)),
        assigned,
        committed(number, term=term),
        Published(term=term, iteration=number),
    ]


def sound() -> EventHistory:
    """Two terms; the second repeats iterations that the first had journalled but not logged."""
    first: list[Event] = [Began(run="r", term=1, known=0, resumes_at=0)]
    first += [Joined(term=1, learner=j) for j in range(3)]
    first += [EpochBegan(term=1, epoch=0, matrix=MATRIX), *iteration(0, term=1)]
    second: list[Event] = [Began(run="r", term=2, known=2, resumes_at=2)]
    second += [Joined(term=2, learner=j) for j in range(3)]
    second += [EpochBegan(term=2, epoch=0, matrix=MATRIX), *iteration(2, term=2)]
    replay: list[Event] = [
        Truncated(table="t", head=0),
        Stored(table="t", first=0, head=4),
        Stored(table="t", first=4, head=8),
        Reopened(table="t", head=8),
        Stored(table="t", first=8, head=12),
    ]
    learners = {f"learner-{j}": history_of(j) for j in (0, 2)}
    return EventHistory(controller=[*first, *second], replay=replay, learners=learners)


def history_of(learner: int) -> list[Event]:
    events: list[Event] = []
    for term, number in ((1, 0), (2, 2)):
        events += [
            Welcomed(run="r", term=term, learner=learner),
            Sent(
                run="r",
                term=term,
                epoch=0,
                iteration=number,
                attempt=0,
                learner=learner,
                row=learner,
                batch_digest="b",
            ),
        ]
    return events


def test_a_sound_history_has_no_violation() -> None:
    assert violations(sound()) == []
    assert violations(sound(), reference=REFERENCE) == []
    assert violations(EventHistory(), reference=()) == []


def controller(change: Callable[[list[Event]], None]) -> EventHistory:
    events = list(sound().controller)
    change(events)
    return replace(sound(), controller=events)


def changed(kind: type[Event], number: int, **fields: object) -> EventHistory:
    """The sound history with other fields in the controller's ``number``-th event of a kind."""

    def change(events: list[Event]) -> None:
        places = [place for place, event in enumerate(events) if isinstance(event, kind)]
        events[places[number]] = replace(events[places[number]], **fields)  # type: ignore[arg-type]

    return controller(change)


def with_replay(*events: Event) -> EventHistory:
    return replace(sound(), replay=[*sound().replay, *events])


def with_sent(**fields: object) -> EventHistory:
    events = history_of(2)
    events[3] = replace(events[3], **fields)  # type: ignore[arg-type]
    return replace(sound(), learners={**sound().learners, "learner-2": events})


def quarantined(*, rejoined: bool) -> EventHistory:
    def change(events: list[Event]) -> None:
        place = next(place for place, each in enumerate(events) if isinstance(each, Committed))
        events[place] = committed(0, term=1, culprit=1)
        again: list[Event] = [Left(term=1, learner=1, reason=""), Joined(term=1, learner=1)]
        following = iteration(1, term=1)
        events[place + 2 : place + 2] = [*(again if rejoined else []), *following]

    return controller(change)


def recoded(*, unit: int) -> EventHistory:
    """Learner 0 computes a unit alone, in a row that C does not have."""

    def change(events: list[Event]) -> None:
        place = next(place for place, each in enumerate(events) if isinstance(each, Committed))
        events[place : place + 1] = [
            Added(term=1, epoch=0, iteration=0, units=((3, unit),)),
            Assigned(term=1, epoch=0, iteration=0, attempt=1, rows=((3, 0),)),
            replace(committed(0, term=1), rows=((0, 0), (3, 0))),
        ]

    return replace(controller(change), learners={})


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (changed(Began, 1, term=1), "terms rise: term 1 began after term 1"),
        (changed(Committed, 1, term=3), "terms rise: committed under term 3, but term 2 had begun"),
        (
            controller(lambda events: events.extend([committed(0, term=1), committed(1, term=1)])),
            "terms rise: committed under term 1, but term 2 had begun",
        ),
        (changed(Began, 1, known=0, resumes_at=0), "nothing is forgotten: term 2 knew 0"),
        (changed(Began, 1, resumes_at=3), "iterations follow one another: term 2 went on at"),
        (changed(Assigned, 1, iteration=1), "iteration 1 was assigned in place of 2"),
        (changed(Committed, 1, iteration=1), "iteration 1 was committed in place of 2"),
        (
            changed(Committed, 1, iteration=0, digest="other"),
            "one digest an iteration: iteration 0 was committed as d0 and as other",
        ),
        (changed(Published, 0, iteration=1), "iteration 1 was published twice or before"),
        (
            controller(lambda events: events.insert(-1, events[-1])),
            "published once it is durable: iteration 2 was published twice",
        ),
        (changed(Committed, 0, epoch=1), "rows span the target: iteration 0: epoch 1 was never"),
        (changed(Committed, 0, rows=((0, 0),)), "rows span the target: iteration 0: rows [0]"),
        (changed(Committed, 0, rows=((0, 0), (9, 1))), "rows [0, 9] have rank 1"),
        (recoded(unit=0), "rows span the target: iteration 0: rows [0, 3] have rank 1"),
        (changed(Committed, 0, rows=((0, 0), (1, 1), (1, 1))), "a row was used twice"),
        (changed(Committed, 0, rows=((0, 0), (1, 2))), "learner 2 never held row 1"),
        (with_sent(row=1), "used is what was sent: iteration 2: learner 2 never sent row 2"),
        (with_sent(term=1), "used is what was sent: iteration 2: learner 2 never sent row 2"),
        (with_sent(batch_digest="x"), "iteration 2: rows of different minibatches"),
        (changed(Committed, 0, culprit=2), "iteration 0: committed with culprit 2"),
        (quarantined(rejoined=False), "culprits are left out: iteration 1: assigned with culprit"),
        (with_replay(Reopened(table="t", head=8)), "table t: head 8 after 12 was stored"),
        (with_replay(Stored(table="t", first=16, head=20)), "a gap before position 16"),
        (changed(Acknowledged, 1, head=13), "position 12 was acknowledged and never stored"),
    ],
)
def test_a_violation_is_named(history: EventHistory, said: str) -> None:
    found = violations(history)
    assert any(said in line for line in found), found


def test_what_a_later_term_did_not_know_must_not_be_published() -> None:
    def late(events: list[Event]) -> None:
        began = next(each for each in reversed(events) if isinstance(each, Began))
        assert isinstance(began, Began)
        events.append(Published(term=1, iteration=began.known))

    found = violations(controller(late))
    assert any(line.startswith("published is known to successors: term 1") for line in found)


def test_where_commits_are_proved_a_wrong_one_counts_though_it_is_taken_back() -> None:
    reference = ["other", "d1", "d2"]
    assert "proved" not in str(violations(sound(), reference=reference))
    proved = violations(sound(), reference=reference, proved=True)
    assert "proved: term 1 committed iteration 0 as d0" in proved


def test_committed_digests_are_held_against_the_reference() -> None:
    assert violations(sound(), reference=["d0", "d1", "x"]) == [
        "exact: iteration 2 was committed as d2, not x"
    ]
    assert violations(sound(), reference=[*REFERENCE, "d3"]) == [
        "complete: iteration 3 was not committed"
    ]


@pytest.mark.parametrize("taken_back", [False, True])
def test_what_was_taken_back_may_be_committed_as_something_else(taken_back: bool) -> None:
    first: list[Event] = [Began(run="r", term=1, known=0, resumes_at=0)]
    first += [Joined(term=1, learner=j) for j in range(3)]
    first += [
        EpochBegan(term=1, epoch=0, matrix=MATRIX),
        *iteration(0, term=1),
        *iteration(1, term=1),
    ]
    first[-2] = replace(committed(1, term=1), digest="wrong")
    back: list[Event] = [TakenBack(term=1, first=1)] if taken_back else []
    second: list[Event] = [Began(run="r", term=2, known=1, resumes_at=1)]
    second += [Joined(term=2, learner=j) for j in range(3)]
    second += [
        EpochBegan(term=2, epoch=0, matrix=MATRIX),
        *iteration(1, term=2),
        *iteration(2, term=2),
    ]
    found = violations(EventHistory(controller=[*first, *back, *second]), reference=REFERENCE)
    if taken_back:
        assert found == []
    else:
        assert [line.partition(":")[0] for line in found] == [
            "nothing is forgotten",
            "one digest an iteration",
        ]


@pytest.mark.parametrize(("second", "enough"), [(2, True), (1, False)])
def test_committed_rows_need_to_span_the_sum_alone_where_it_is_the_target(
    second: int, enough: bool
) -> None:
    summed = EpochBegan(
        term=1,
        epoch=0,
        matrix=((1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
        target=((1.0, 1.0, 1.0),),
    )

    def change(events: list[Event]) -> None:
        for place, event in enumerate(events):
            if isinstance(event, EpochBegan):
                events[place] = replace(summed, term=event.term)
            elif isinstance(event, Committed):
                events[place] = replace(event, rows=((0, 0), (second, second)))

    found = violations(controller(change))
    assert any("span the target" in line for line in found) is not enough, found
