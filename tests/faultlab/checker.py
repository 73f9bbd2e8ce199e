"""Incremental check of the invariants of a run while it goes on, in bounded memory.

No invariant refers to events before the previous term: the iterations known at the start of a term
stand for all earlier commits. For replay, only the heads of its tables matter.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from tests.faultlab.history import EventHistory
from tests.faultlab.invariants import violations

from fullrank.runs.events import Began, Committed, Event, Reopened, Stored, Truncated

TERMS = 2
"""Terms whose events are retained, the running one included."""


class Checker:
    """Checks the event logs of a run piece by piece.

    Args:
        reference: Update digest of every iteration, from a run in one process; None of a
            run that has no reference.

    Attributes:
        retained: Events that later ones may refer to.
    """

    def __init__(self, reference: Sequence[str] | None) -> None:
        self._reference = reference
        self.retained = EventHistory()

    def check(self, appended: EventHistory) -> list[str]:
        """Violations among the new events and the retained ones."""
        events = _joined(self.retained, appended)
        commits = [event for event in events.controller if isinstance(event, Committed)]
        self.retained = _recent(events)
        if self._reference is None:
            return violations(events)
        expected = self._reference[: commits[-1].iteration + 1] if commits else ()
        return violations(events, reference=expected)


def _joined(before: EventHistory, after: EventHistory) -> EventHistory:
    names = sorted(before.learners.keys() | after.learners.keys())
    return EventHistory(
        controller=[*before.controller, *after.controller],
        replay=[*before.replay, *after.replay],
        learners={
            name: [*before.learners.get(name, ()), *after.learners.get(name, ())] for name in names
        },
    )


def _recent(history: EventHistory) -> EventHistory:
    """Events of the last terms, and the heads of the replay tables."""
    terms = [event.term for event in history.controller if isinstance(event, Began)]
    oldest = terms[-TERMS:][0] if terms else 0
    learners = {name: _since(oldest, events) for name, events in history.learners.items()}
    return EventHistory(
        controller=_since(oldest, history.controller),
        replay=list(_heads(history.replay)),
        learners={name: events for name, events in learners.items() if events},
    )


def _since(oldest: int, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if getattr(event, "term", oldest) >= oldest]


def _heads(replay: Sequence[Event]) -> Iterator[Event]:
    """Events that summarise all others: the largest and the present head of each table."""
    heads: dict[str, int] = {}
    filled: dict[str, int] = {}
    for event in replay:
        if isinstance(event, Reopened | Truncated | Stored):
            heads[event.table] = event.head
        if isinstance(event, Stored):
            filled[event.table] = max(event.head, filled.get(event.table, 0))
    return chain.from_iterable(
        (Stored(table=name, first=0, head=filled.get(name, 0)), Truncated(table=name, head=head))
        for name, head in heads.items()
    )
