"""Invariants of a run's event logs, which hold under any faults of its services.

Each invariant is a function from the logs to its violations. They check these guarantees:

* exact: each committed update is the centralised one, from rows that determine it;
* once: each iteration is committed once, each contribution used once, from its assigned learner;
* durable: committed iterations stay committed, under rising terms, unless they are proved wrong and
  rolled back;
* acknowledged: acknowledged transitions stay in replay;
* clean: a learner that computed wrongly is excluded;
* proved: what too few learners to be believed state alike is never committed;
* fresh: collectors play with parameters that exist and are no older than the lag.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.faultlab.history import EventHistory

from fullrank.codes import Decoder
from fullrank.common.types import LearnerId, Matrix, UnitIndex
from fullrank.runs.events import (
    Acknowledged,
    Added,
    Assigned,
    Began,
    BlockAssigned,
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


@dataclass(slots=True, kw_only=True)
class _Term:
    """Events of one controller."""

    began: Began
    events: list[Event] = field(default_factory=list)
    matrices: dict[int, tuple[Matrix, Matrix | None]] = field(default_factory=dict)
    """C by epoch, and T unless it is every unit."""
    assigned: dict[tuple[int, int], set[tuple[int, LearnerId]]] = field(default_factory=dict)
    """Rows and their learners by (epoch, iteration), in all attempts."""
    added: dict[tuple[int, int], dict[int, UnitIndex]] = field(default_factory=dict)
    """Units of the extra rows by (epoch, iteration)."""

    def add(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, EpochBegan):
            target = np.array(event.target) if event.target else None
            self.matrices[event.epoch] = np.array(event.matrix), target
        elif isinstance(event, Added):
            self.added.setdefault((event.epoch, event.iteration), {}).update(event.units)
        elif isinstance(event, Assigned):
            self.assigned.setdefault((event.epoch, event.iteration), set()).update(event.rows)

    def commits(self) -> list[Committed]:
        return [event for event in self.events if isinstance(event, Committed)]


def violations(
    history: EventHistory,
    *,
    reference: Sequence[str] | None = None,
    lag: int | None = None,
    proved: bool = False,
) -> list[str]:
    """All violations, one line each.

    Args:
        history: Event logs of all services; those of learners and replay may be missing.
        reference: Update digest of every iteration, from a run in one process; if given, all these
            iterations must be committed.
        lag: Greatest lag of the parameters that collectors play with; None: not checked.
        proved: True if a commit rests on no learner's word alone (``audit.byzantine``): then no
            wrong update is ever committed, not even for a while.
    """
    broken = [
        f"{name}: {violation}"
        for name, invariant in INVARIANTS.items()
        for violation in invariant(history)
    ]
    if lag is not None:
        broken += [f"fresh: {violation}" for violation in _stale_blocks(history, lag)]
    if reference is None:
        return broken
    if proved:
        broken += [f"proved: {violation}" for violation in _lies(history, reference)]
    return [*broken, *_differences(history, reference)]


def _terms(history: EventHistory) -> list[_Term]:
    """Events by term; a superseded controller may still log its end."""
    terms: dict[int, _Term] = {}
    for event in history.controller:
        if isinstance(event, Began):
            terms.setdefault(event.term, _Term(began=event))
        elif (term := terms.get(getattr(event, "term", 0))) is not None:
            term.add(event)
    return list(terms.values())


def _commits(history: EventHistory) -> list[Committed]:
    return [event for event in history.controller if isinstance(event, Committed)]


def _terms_rise(history: EventHistory) -> Iterator[str]:
    """A superseded controller may still commit one iteration: the same bits, never read."""
    current, ended = 0, 0
    for event in history.controller:
        if isinstance(event, Began):
            if event.term <= current:
                yield f"term {event.term} began after term {current}"
            current, ended = max(current, event.term), 0
        elif isinstance(event, Committed) and event.term != current:
            ended += 1
            if ended > 1 or event.term > current:
                yield f"committed under term {event.term}, but term {current} had begun"


def _nothing_is_forgotten(history: EventHistory) -> Iterator[str]:
    known = current = 0
    for event in history.controller:
        if isinstance(event, Began):
            current = event.term
            if event.known < known:
                yield f"term {current} knew {event.known} iterations of {known} committed"
            known = max(known, event.known)
        elif isinstance(event, Committed) and event.term == current:
            known = max(known, event.iteration + 1)
        elif isinstance(event, TakenBack):
            known = min(known, event.first)


def _iterations_follow_one_another(history: EventHistory) -> Iterator[str]:
    for term in _terms(history):
        following = term.began.resumes_at
        if following > term.began.known:
            yield f"term {term.began.term} went on at iteration {following}, which is not known"
        for event in term.events:
            if isinstance(event, Assigned):  # at most one, while the one before is written
                wrong = not 0 <= event.iteration - following <= history.ahead
            else:
                wrong = isinstance(event, Committed) and event.iteration != following
            if wrong and isinstance(event, Assigned | Committed):
                yield f"iteration {event.iteration} was {event.event} in place of {following}"
            if isinstance(event, Committed):
                following = event.iteration + 1


def _one_digest_an_iteration(history: EventHistory) -> Iterator[str]:
    digests: dict[int, str] = {}
    for event in history.controller:
        if isinstance(event, TakenBack):
            digests = {
                iteration: digest
                for iteration, digest in digests.items()
                if iteration < event.first
            }
        if not isinstance(event, Committed):
            continue
        first = digests.setdefault(event.iteration, event.digest)
        if event.exact and event.digest != first:
            yield f"iteration {event.iteration} was committed as {first} and as {event.digest}"


def _published_once_it_is_durable(history: EventHistory) -> Iterator[str]:
    for term in _terms(history):
        committed: set[int] = set()
        for event in term.events:
            if isinstance(event, Committed):
                committed.add(event.iteration)
            elif isinstance(event, Published) and event.iteration not in committed:
                yield f"iteration {event.iteration} was published twice or before its commit"
            elif isinstance(event, Published):
                committed.remove(event.iteration)


def _published_is_known_to_successors(history: EventHistory) -> Iterator[str]:
    current = known = 0
    for event in history.controller:
        if isinstance(event, Began):
            current, known = event.term, event.known
        elif isinstance(event, Published) and event.term < current and event.iteration >= known:
            yield (
                f"term {event.term} published iteration {event.iteration}, but term {current} knew "
                f"{known}"
            )


def _rows_span_the_target(history: EventHistory) -> Iterator[str]:
    for term in _terms(history):
        for commit in term.commits():
            rows = [row for row, _ in commit.rows]
            if commit.epoch not in term.matrices:
                yield f"iteration {commit.iteration}: epoch {commit.epoch} was never assigned"
                continue
            matrix, target = term.matrices[commit.epoch]
            decoder = Decoder(matrix, target=target)
            extra = term.added.get((commit.epoch, commit.iteration), {})
            valid = [row for row in rows if 0 <= row < len(matrix) or row in extra]
            for row in valid:
                coefficients = np.eye(matrix.shape[1])[extra[row]] if row in extra else None
                decoder.offer(row=row, coefficients=coefficients)
            if len(valid) < len(rows) or not decoder.decodable:
                yield f"iteration {commit.iteration}: rows {rows} have rank {decoder.rank}"


def _rows_are_of_their_holders(history: EventHistory) -> Iterator[str]:
    for term in _terms(history):
        for commit in term.commits():
            if len({row for row, _ in commit.rows}) < len(commit.rows):
                yield f"iteration {commit.iteration}: a row was used twice: {commit.rows}"
            held = term.assigned.get((commit.epoch, commit.iteration), set())
            for row, learner in sorted(set(commit.rows) - held):
                yield f"iteration {commit.iteration}: learner {learner} never held row {row}"


def _used_is_what_was_sent(history: EventHistory) -> Iterator[str]:
    """Used rows were sent, as far as learners have logs; equal items of a minibatch are equal.

    A corrupted assignment may make a learner send another vector under the same ids, which is
    refused; then either of them may be the used one. Commits that are not exact are of learners
    that draw samples of their own, and one that was told another iteration draws others unnoticed.
    """
    events_of_learners = [event for events in history.learners.values() for event in events]
    leased, welcomed = (
        Counter((event.term, event.learner) for event in events if isinstance(event, kind))
        for kind, events in ((Joined, history.controller), (Welcomed, events_of_learners))
    )
    sent = defaultdict[tuple[int, ...], set[tuple[tuple[int, ...], str]]](set)
    for event in events_of_learners:
        if isinstance(event, Sent):
            key = (event.term, event.epoch, event.iteration, event.learner, event.row)
            sent[key].add((event.items, event.batch_digest))
    for commit in _commits(history):
        batches = defaultdict[tuple[int, ...], list[set[str]]](list)
        for row, learner in commit.rows:
            key = (commit.term, commit.epoch, commit.iteration, learner, row)
            if key in sent:
                fetched = {items for items, _ in sent[key]}
                if len(fetched) == 1:
                    batches[fetched.pop()].append({digest for _, digest in sent[key]})
            elif leased[commit.term, learner] == welcomed[commit.term, learner]:
                yield f"iteration {commit.iteration}: learner {learner} never sent row {row}"
        alike = all(set.intersection(*digests) for digests in batches.values())
        if commit.exact and not alike:
            yield f"iteration {commit.iteration}: rows of different minibatches were combined"


def _culprits_are_left_out(history: EventHistory) -> Iterator[str]:
    for term in _terms(history):
        culprits: set[LearnerId] = set()
        for event in term.events:
            if isinstance(event, Committed) and event.culprit is not None:
                culprits.add(event.culprit)
            if isinstance(event, Joined | Left):
                culprits.discard(event.learner)
            if isinstance(event, Assigned | Committed):
                for learner in sorted(culprits & {learner for _, learner in event.rows}):
                    yield f"iteration {event.iteration}: {event.event} with culprit {learner}"


def _acknowledged_is_kept(history: EventHistory) -> Iterator[str]:
    heads: dict[str, int] = {}
    for event in history.replay:
        if isinstance(event, Reopened) and event.head < heads.get(event.table, 0):
            yield f"table {event.table}: head {event.head} after {heads[event.table]} was stored"
        if isinstance(event, Stored) and event.first > heads.get(event.table, 0):
            yield f"table {event.table}: a gap before position {event.first}"
        if isinstance(event, Reopened | Truncated | Stored):
            heads[event.table] = event.head
    stored = max((event.head for event in history.replay if isinstance(event, Stored)), default=0)
    for event in history.controller:
        if isinstance(event, Acknowledged) and history.replay and event.head > stored:
            yield f"position {event.head - 1} was acknowledged and never stored"


def _stale_blocks(history: EventHistory, lag: int) -> Iterator[str]:
    """Blocks assigned with parameters that are too old, or that no collector has yet."""
    for term in _terms(history):
        applied = term.began.known
        for event in term.events:
            if isinstance(event, Committed):
                applied = max(applied, event.iteration + 1)
            if not isinstance(event, BlockAssigned) or event.version is None:
                continue
            block = f"block {event.block} of iteration {event.iteration}"
            if event.iteration - event.version > lag:
                yield f"{block} was assigned with version {event.version}, a lag above {lag}"
            if event.version > applied + history.ahead:  # the last may not be durable yet
                yield f"{block} was assigned with version {event.version} after {applied} updates"


INVARIANTS: dict[str, Callable[[EventHistory], Iterator[str]]] = {
    "terms rise": _terms_rise,
    "nothing is forgotten": _nothing_is_forgotten,
    "iterations follow one another": _iterations_follow_one_another,
    "one digest an iteration": _one_digest_an_iteration,
    "published once it is durable": _published_once_it_is_durable,
    "published is known to successors": _published_is_known_to_successors,
    "rows span the target": _rows_span_the_target,
    "rows are of their holders": _rows_are_of_their_holders,
    "used is what was sent": _used_is_what_was_sent,
    "culprits are left out": _culprits_are_left_out,
    "acknowledged is kept": _acknowledged_is_kept,
}
"""Invariants by the sentence that they check."""


def _differences(history: EventHistory, reference: Sequence[str]) -> Iterator[str]:
    """Digests other than the centralised ones, and iterations that were never committed."""
    known = max((term.began.known for term in _terms(history)), default=0)
    committed = {commit.iteration: commit for commit in _commits(history)}
    for iteration, digest in enumerate(reference):
        commit = committed.get(iteration)
        if commit is None and iteration >= known:
            yield f"complete: iteration {iteration} was not committed"
        if commit is not None and commit.exact and commit.digest != digest:
            yield f"exact: iteration {iteration} was committed as {commit.digest}, not {digest}"


def _lies(history: EventHistory, reference: Sequence[str]) -> Iterator[str]:
    """Commits with other digests than the centralised ones, also those that are taken back."""
    for commit in _commits(history):
        if commit.exact and commit.digest != reference[commit.iteration]:
            yield f"term {commit.term} committed iteration {commit.iteration} as {commit.digest}"
