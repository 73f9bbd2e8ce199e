"""Times of a round, as its record keeps them; the deadline that follows from past rounds."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

from fullrank.common.deadlines import FACTOR, limit_s
from fullrank.common.types import LearnerId
from fullrank.config.tree import ControllerSettings
from fullrank.net.tracing import UNTRACED, TraceSpan, begin
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import Arrived
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.membership.member import Member


@dataclass(slots=True, kw_only=True)
class Timeline:
    """Times by learner, seconds since the round was opened.

    Fields have the names and meanings of ``IterationRecord``.
    """

    began_at: float
    """Loop time at which the round was opened."""
    rows: dict[LearnerId, int] = field(default_factory=dict)
    """First row that each learner was assigned."""
    compute_s: dict[LearnerId, float] = field(default_factory=dict)
    assigned_s: dict[LearnerId, float] = field(default_factory=dict)
    started_s: dict[LearnerId, float] = field(default_factory=dict)
    sent_s: dict[LearnerId, float] = field(default_factory=dict)
    arrival_s: dict[LearnerId, float] = field(default_factory=dict)
    decodable_s: float | None = None
    decode_s: float = 0.0
    """Duration of the last decoding."""
    ids: Ids = field(default_factory=Ids)
    span: TraceSpan = UNTRACED
    """The whole round, until it is durable."""

    @classmethod
    def of(cls, ids: Ids, opened: OpenRound[Any]) -> Self:
        """Return the timeline of an open round, whose span begins."""
        code = opened.assignment.code
        span = begin("round", ids, code=code.name, rows=code.rows, units=code.units)
        return cls(began_at=opened.began_at, ids=ids, span=span)

    def part(self, name: str, **attributes: Any) -> TraceSpan:
        """Begin the span of a part of the round."""
        return begin(name, self.ids, parent=self.span.traceparent, **attributes)

    def elapsed_s(self) -> float:
        """Seconds since the round was opened."""
        return asyncio.get_running_loop().time() - self.began_at

    def assigned(self, learner: LearnerId, row: int) -> None:
        """Record a learner's first assignment."""
        self.rows.setdefault(learner, row)
        self.assigned_s.setdefault(learner, self.elapsed_s())

    def arrived(self, event: Arrived, holder: Member | None, *, code_rows: int) -> None:
        """Record a vector; without a holder, when its sender has left, less is known of it.

        Of several vectors of a learner, the first tells when it began to send, the last when all
        had arrived. What it computes beyond its rows of C, it computes later.

        Args:
            event: The vector.
            holder: The learner that holds its row.
            code_rows: R; rows beyond it are extra ones.
        """
        learner, now_s = event.learner, self.elapsed_s()
        if event.row >= code_rows > self.rows.get(learner, event.row):
            return
        self.compute_s[learner] = min(event.compute_s, now_s)
        self.arrival_s[learner] = now_s
        if holder is not None:
            assigned_s = self.assigned_s.get(learner, 0.0)
            written_s = max(assigned_s, holder.outbox.assigned_at - self.began_at)
            self.started_s[learner] = min(written_s + event.started_s, now_s)
            self.sent_s.setdefault(learner, min(written_s + event.sent_s, now_s))

    def decodable(self) -> None:
        """Record when the received rows first became decodable."""
        if self.decodable_s is None:
            self.decodable_s = self.elapsed_s()


MEASURED_ROUNDS = 100
"""Most recent rounds that determine the deadline."""
PATIENCE = 2.0
"""Median round times to wait for the late reports of an audited iteration."""


class RoundTimes:
    """Durations of the last rounds and the limits that follow from them.

    Args:
        settings: Bounds of the deadline.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._times: deque[float] = deque(maxlen=MEASURED_ROUNDS)

    def add(self, round_s: float) -> None:
        """Take the duration of a committed round into account."""
        self._times.append(round_s)

    @property
    def deadline_s(self) -> float:
        """The deadline of a round; the configured one until enough rounds are measured."""
        return limit_s(
            self._times,
            factor=FACTOR,
            least_s=self._settings.least_deadline_s,
            unmeasured_s=self._settings.deadline_s,
        )

    @property
    def patience_s(self) -> float:
        """The longest wait for late reports."""
        return PATIENCE * median(self._times) if self._times else self.deadline_s
