"""A judge of a run that goes on, for whom hours take no more memory than minutes.

No invariant looks back further than to the term before: what is known when a term begins stands for
all that was committed earlier. Of replay it only matters where its tables stood.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from fullrank.runs.event_log import Began, Committed, Event, History, Reopened, Stored, Truncated
from fullrank_faultlab.invariants import violations

TERMS = 2
"""So many are remembered, the running one among them."""


class Judge:
    """Told what the services of a run note, says what contradicts the invariants.

    Args:
        reference: The digest of every iteration of the run, as computed in one process.

    Attributes:
        remembered: What later events may rest on.
    """

    def __init__(self, reference: Sequence[str]) -> None:
        self._reference = reference
        self.remembered = History()

    def hear(self, noted: History) -> list[str]:
        """What contradicts, in all that was noted since the last time and what it rests on."""
        known = _joined(self.remembered, noted)
        commits = [event for event in known.controller if isinstance(event, Committed)]
        expected = self._reference[: commits[-1].iteration + 1] if commits else ()
        self.remembered = _recent(known)
        return violations(known, reference=expected)


def _joined(before: History, after: History) -> History:
    names = sorted(before.learners.keys() | after.learners.keys())
    return History(
        controller=[*before.controller, *after.controller],
        replay=[*before.replay, *after.replay],
        learners={
            name: [*before.learners.get(name, ()), *after.learners.get(name, ())] for name in names
        },
    )


def _recent(history: History) -> History:
    """What was noted under the last terms, and where replay stood."""
    terms = [event.term for event in history.controller if isinstance(event, Began)]
    oldest = terms[-TERMS:][0] if terms else 0
    learners = {name: _since(oldest, events) for name, events in history.learners.items()}
    return History(
        controller=_since(oldest, history.controller),
        replay=list(_stood(history.replay)),
        learners={name: events for name, events in learners.items() if events},
    )


def _since(oldest: int, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if getattr(event, "term", oldest) >= oldest]


def _stood(replay: Sequence[Event]) -> Iterator[Event]:
    """Events that stand for all: how far each table ever was filled, and where it ends."""
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
