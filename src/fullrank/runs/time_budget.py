"""Where the time of iterations goes, which phase takes most of it, and what to do about that.

The phases of an iteration follow one another for the learner whose row completed J: nobody else's
time matters.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fullrank.common.types import LearnerId
from fullrank.runs.record import IterationRecord

ADVICE = {
    "collect": "play while learners compute (collect.lag = 1), or fewer copies or steps",
    "assign": "parameters and minibatches travel too long: a faster network, smaller networks",
    "compute": "a lower code.tolerance (less load), more learners, or faster ones",
    "delay": "learners are late: a higher code.tolerance, or code.name = auto",
    "transfer": "coded vectors travel too long: a faster network, smaller networks",
    "decode": "fewer units a round, or a better conditioned code",
    "update": "smaller networks: the optimiser steps on all of them",
}
"""Phase to what shortens it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The phase that takes most of the time."""

    phase: str
    share: float
    """Of all time."""

    def __str__(self) -> str:
        return f"{self.phase} takes {self.share:.0%} of an iteration: {ADVICE[self.phase]}"


class Span(NamedTuple):
    """What a learner did for a while in a round."""

    phase: str
    """One of a budget's, or ``late``: it was assigned a row that was not waited for."""
    start_s: float
    """Since the first assignment, as is the end."""
    end_s: float


def spans(record: IterationRecord, learner: LearnerId) -> list[Span]:
    """The round of a learner that was assigned a row, in order of time."""
    assigned_s = record.assigned_s[learner]
    if learner not in record.started_s:
        return [Span("late", assigned_s, record.round_s)]
    started_s, sent_s = record.started_s[learner], record.sent_s[learner]
    computed_s = min(started_s + record.compute_s[learner], sent_s)
    return [
        Span("assign", assigned_s, started_s),
        Span("compute", started_s, computed_s),
        Span("delay", computed_s, sent_s),
        Span("transfer", sent_s, record.arrival_s[learner]),
    ]


def budget(record: IterationRecord) -> dict[str, float]:
    """Seconds of each phase; empty for a record without timelines."""
    last = next((each for each in reversed(record.received) if each in record.started_s), None)
    if last is None:
        return {}
    started_s, sent_s = record.started_s[last], record.sent_s[last]
    compute_s, arrival_s = record.compute_s[last], record.arrival_s[last]
    phases = {
        "collect": record.collect_s,
        "assign": started_s,
        "compute": compute_s,
        "delay": sent_s - started_s - compute_s,
        "transfer": arrival_s - sent_s,
        "decode": record.decode_s,
        "update": record.round_s - arrival_s - record.decode_s,
    }
    return {phase: max(0.0, seconds) for phase, seconds in phases.items()}


def spent(records: Iterable[IterationRecord]) -> dict[str, float]:
    """Seconds of each phase over several iterations."""
    total: Counter[str] = Counter()
    for record in records:
        total.update(budget(record))
    return dict(total)


def bottleneck(phases: dict[str, float]) -> Bottleneck | None:
    """The longest phase; None where nothing was measured."""
    whole = sum(phases.values())
    if not whole:
        return None
    phase = max(phases, key=phases.__getitem__)
    return Bottleneck(phase=phase, share=phases[phase] / whole)
