"""Log of a run: notable events, derived from its records and statuses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fullrank.net.status import RunState, RunStatus
from fullrank.runs.record import IterationRecord

LogLineKind: TypeAlias = Literal["fault", "audit", "change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of the log."""

    iteration: int
    kind: LogLineKind
    text: str


def of_records(before: IterationRecord | None, now: IterationRecord) -> Iterator[LogLine]:
    """Events between two consecutive iterations."""

    def line(kind: LogLineKind, text: str) -> LogLine:
        return LogLine(iteration=now.iteration, kind=kind, text=text)

    if before is not None and now.iteration <= before.iteration:
        yield line("audit", f"iterations {now.iteration} to {before.iteration} were rolled back")
    elif before is not None and now.term != before.term:
        yield line("fault", f"the controller started again: term {now.term}")
    if before is None or now.epoch != before.epoch:
        rows = f"{now.code}, {now.code_rows} rows, tolerance {now.tolerance}"
        yield line("change", f"code assigned, epoch {now.epoch}: {rows}")
    if now.attempt:
        yield line("fault", "rows were assigned again within the iteration")
    for learner in now.quarantined:
        yield line("audit", f"learner {learner} sent a wrong contribution and was left out")
    if not now.exact and now.variance is None:
        yield line("audit", f"inexact: no entry is off by more than {now.error_bound or 0:.1e}")


def of_statuses(before: RunStatus | None, now: RunStatus) -> Iterator[LogLine]:
    """Events between two statuses of a run."""

    def line(kind: LogLineKind, text: str) -> LogLine:
        return LogLine(iteration=now.committed, kind=kind, text=text)

    if before is None:
        if now.state is RunState.FAILED:
            yield line("fault", f"failed: {now.message}")
        return
    earlier = {status.learner: status for status in before.learners}
    present = {status.learner: status for status in now.learners}
    for learner in sorted(present.keys() - earlier):
        yield line("change", f"learner {learner} joined from {present[learner].host}")
    for learner in sorted(earlier.keys() - present):
        yield line("fault", f"learner {learner} left")
    for learner, status in present.items():
        if status.quarantined and not (learner in earlier and earlier[learner].quarantined):
            yield line("audit", f"learner {learner} is quarantined: {status.quarantined}")
    if now.state is not before.state:
        bad = now.state in (RunState.STALLED, RunState.FAILED)
        kind: LogLineKind = "fault" if bad else "change"
        yield line(kind, f"{now.state}{': ' * bool(now.message)}{now.message}")
