"""Log of a run: notable events, derived from its records and statuses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fullrank.rpc.run_status import RunState, RunStatus
from fullrank.runs.record import IterationRecord

Kind: TypeAlias = Literal["fault", "audit", "change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the log."""

    iteration: int
    kind: Kind
    text: str


def of_records(before: IterationRecord | None, now: IterationRecord) -> Iterator[Entry]:
    """Events between two consecutive iterations."""

    def entry(kind: Kind, text: str) -> Entry:
        return Entry(iteration=now.iteration, kind=kind, text=text)

    if before is not None and now.iteration <= before.iteration:
        yield entry("audit", f"iterations {now.iteration} to {before.iteration} were rolled back")
    elif before is not None and now.term != before.term:
        yield entry("fault", f"the controller started again: term {now.term}")
    if before is None or now.epoch != before.epoch:
        rows = f"{now.code}, {now.code_rows} rows, tolerance {now.tolerance}"
        yield entry("change", f"code assigned, epoch {now.epoch}: {rows}")
    if now.attempt:
        yield entry("fault", "rows were assigned again within the iteration")
    for learner in now.quarantined:
        yield entry("audit", f"learner {learner} sent a wrong contribution and was left out")
    if not now.exact and now.variance is None:
        yield entry("audit", f"inexact: no entry is off by more than {now.error_bound or 0:.1e}")


def of_statuses(before: RunStatus | None, now: RunStatus) -> Iterator[Entry]:
    """Events between two statuses of a run."""

    def entry(kind: Kind, text: str) -> Entry:
        return Entry(iteration=now.committed, kind=kind, text=text)

    if before is None:
        return
    known = {each.learner: each for each in before.learners}
    present = {each.learner: each for each in now.learners}
    for learner in sorted(present.keys() - known):
        yield entry("change", f"learner {learner} joined from {present[learner].host}")
    for learner in sorted(known.keys() - present):
        yield entry("fault", f"learner {learner} left")
    for learner, each in present.items():
        if each.quarantined and not (learner in known and known[learner].quarantined):
            yield entry("audit", f"learner {learner} is quarantined: {each.quarantined}")
    if now.state is not before.state:
        kind: Kind = "fault" if now.state is RunState.STALLED else "change"
        yield entry(kind, f"{now.state}{': ' * bool(now.message)}{now.message}")
