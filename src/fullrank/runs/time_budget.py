"""Time budget of iterations: the phases, the longest one, and how to shorten it.

The phases are those of the learner whose row completed J; they follow one another, and the times of
other learners do not matter.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fullrank.common.types import LearnerId
from fullrank.runs.record import IterationRecord

ADVICE = {
    "collect": "collect while learners compute (collect.lag = 1), or use fewer copies or steps",
    "assign": "shorten the transfer of parameters and minibatches: a faster link, smaller networks",
    "delay": "raise code.tolerance, or set code.name = auto",
    "compute": "lower code.tolerance (less load), or use more or faster learners",
    "transfer": "shorten the transfer of coded vectors: a faster link, smaller networks",
    "decode": "use fewer units, or a better conditioned code",
    "update": "use smaller networks: the optimiser steps on all of them",
}
"""Advice on how to shorten each phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The longest phase."""

    phase: str
    share: float
    """Share of the total time."""

    def __str__(self) -> str:
        return f"{self.phase} takes {self.share:.0%} of an iteration: {ADVICE[self.phase]}"


class Span(NamedTuple):
    """A phase of a learner within a round."""

    phase: str
    """A phase of the budget, or ``late`` for an assigned row that the commit did not wait for."""
    start_s: float
    """Seconds since the first assignment."""
    end_s: float


def spans(record: IterationRecord, learner: LearnerId) -> list[Span]:
    """Phases of a learner with an assigned row, in order of time."""
    assigned_s = record.assigned_s[learner]
    times = _times(record, learner)
    if times is None:
        return [Span("late", assigned_s, record.round_s)]
    resumed_s = max(times.started_s, times.sent_s - times.compute_s)
    return [
        Span("assign", assigned_s, times.started_s),
        Span("delay", times.started_s, resumed_s),
        Span("compute", resumed_s, times.sent_s),
        Span("transfer", times.sent_s, times.arrival_s),
    ]


class _Times(NamedTuple):
    """Times of a learner that has arrived, seconds since the first assignment."""

    started_s: float
    sent_s: float
    compute_s: float
    arrival_s: float


def _times(record: IterationRecord, learner: LearnerId) -> _Times | None:
    """The times of a learner; None unless the record has all of them."""
    columns = (record.started_s, record.sent_s, record.compute_s, record.arrival_s)
    if all(learner in column for column in columns):
        return _Times(*(column[learner] for column in columns))
    return None


def budget(record: IterationRecord) -> dict[str, float]:
    """Seconds of each phase; empty for a record without timelines."""
    timed = (_times(record, learner) for learner in reversed(record.received))
    last = next((times for times in timed if times is not None), None)
    if last is None:
        return {}
    phases = {
        "collect": record.collect_s,
        "assign": last.started_s,
        "delay": last.sent_s - last.started_s - last.compute_s,
        "compute": last.compute_s,
        "transfer": last.arrival_s - last.sent_s,
        "decode": record.decode_s,
        "update": record.round_s - last.arrival_s - record.decode_s,
    }
    return {phase: max(0.0, seconds) for phase, seconds in phases.items()}


def spent(records: Iterable[IterationRecord]) -> dict[str, float]:
    """Seconds of each phase over several iterations."""
    total: Counter[str] = Counter()
    for record in records:
        total.update(budget(record))
    return dict(total)


def bottleneck(phases: dict[str, float]) -> Bottleneck | None:
    """The longest phase; None without measurements."""
    whole = sum(phases.values())
    if not whole:
        return None
    phase = max(phases, key=phases.__getitem__)
    return Bottleneck(phase=phase, share=phases[phase] / whole)
