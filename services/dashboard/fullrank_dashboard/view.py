"""View of one run, for a page: its curve, its log and the time that the code has saved."""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice, zip_longest
from math import isfinite
from statistics import median
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fullrank.common.errors import Malformed
from fullrank.common.foreign import brief
from fullrank.common.types import JSON, LearnerId
from fullrank.config.elsewhere import compared
from fullrank.config.tree import RunConfig
from fullrank.net.status import CodeInUse, RunState, RunStatus, Status
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord, stand
from fullrank.runs.scalars import STEPS_PER_S, intervals, learning, scalars
from fullrank.runs.time_budget import spans
from fullrank.stragglers import DelayModel
from fullrank.stragglers.additive import NoDelay
from fullrank.stragglers.base import Delays

LIMIT = 20_000
"""Most points; in longer runs neighbouring iterations are averaged into one point."""
COLUMNS = 128
"""Most columns; one takes up to 320 kB."""
DIGITS = 6
"""Significant digits of the numbers sent to a page."""


@dataclass(slots=True, eq=False)
class Column:
    """One number, summed over the iterations of each point."""

    sums: "array[float]" = field(default_factory=lambda: array("d"))
    counts: "array[int]" = field(default_factory=lambda: array("Q"))

    def accumulate(self, index: int, value: float) -> None:
        """Add a value to a point; earlier points may have no value."""
        missing = index + 1 - len(self.sums)
        self.sums.extend([0.0] * missing)
        self.counts.extend([0] * missing)
        self.sums[index] += value
        self.counts[index] += 1

    def halve(self) -> None:
        """Merge points in pairs."""
        self.sums = array("d", map(sum, zip_longest(self.sums[::2], self.sums[1::2], fillvalue=0)))
        self.counts = array(
            "Q", map(sum, zip_longest(self.counts[::2], self.counts[1::2], fillvalue=0))
        )

    def means(self, start: int, length: int) -> list[float | None]:
        """Means of the points from ``start`` to ``length``; None for points without a value."""
        means = [
            float(f"{total / count:.{DIGITS}g}") if count else None
            for total, count in zip(self.sums[start:], self.counts[start:], strict=True)
        ]
        return means + [None] * (length - start - len(means))


class Curve:
    """Columns of numbers over iterations that come in order.

    Args:
        limit: Most points kept.

    Attributes:
        generation: Rises whenever existing points change.
        width: Iterations of each point.
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._columns: dict[str, Column] = {}
        self._length = 0
        self.generation = 0
        self.width = 1

    def __len__(self) -> int:
        return self._length

    def extend(self, iteration: int, values: Mapping[str, float | None]) -> None:
        """Add the numbers of an iteration; None means unknown.

        Raises:
            Malformed: There are more columns than any run has.
        """
        while iteration // self.width >= self._limit:
            self._halve()
        index = iteration // self.width
        self._length = max(self._length, index + 1)
        for name, value in values.items():
            if value is not None:
                self._column(name).accumulate(index, value)

    def _column(self, name: str) -> Column:
        if name not in self._columns and len(self._columns) >= COLUMNS:
            raise Malformed(f"the iterations have more than {COLUMNS} different numbers")
        return self._columns.setdefault(name, Column())

    def forget(self, iteration: int) -> None:
        """Drop the points from the one that holds ``iteration`` on."""
        self._length = min(self._length, iteration // self.width)
        for column in self._columns.values():
            del column.sums[self._length :], column.counts[self._length :]
        self.generation += 1

    def _halve(self) -> None:
        for column in self._columns.values():
            column.halve()
        self._length = -(-self._length // 2)
        self.width *= 2
        self.generation += 1

    def columns(self, start: int) -> dict[str, list[float | None]]:
        """Means of the points from ``start`` on, by name."""
        return {name: column.means(start, self._length) for name, column in self._columns.items()}

    def total(self, name: str) -> float:
        """Sum of a number over all iterations."""
        return sum(self._columns[name].sums) if name in self._columns else 0.0


LogLineKind: TypeAlias = Literal["fault", "audit", "change"]


class LogLine(NamedTuple):
    """A line of the log."""

    iteration: int
    kind: LogLineKind
    text: str


def of_records(before: IterationRecord | None, now: IterationRecord) -> Iterator[LogLine]:
    """Events between two consecutive iterations."""
    line = partial(LogLine, now.iteration)
    if before is not None and now.iteration <= before.iteration:
        yield line("audit", f"iterations {now.iteration} to {before.iteration} do not stand")
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
    line = partial(LogLine, now.committed)
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


def saved_s(record: IterationRecord, delays: Delays) -> float:
    """Lower bound on the time from rank M to the last learner's arrival, seconds.

    A late learner had not arrived when the round ended. If the run itself delays learners, it would
    have arrived that much after the median learner.

    Args:
        record: The round.
        delays: Delays injected by the run in this iteration, shape (N,), seconds.
    """
    if not record.late or record.decodable_s is None or not record.arrival_s:
        return 0.0
    usual_s = median(at_s - _delay_s(delays, learner) for learner, at_s in record.arrival_s.items())
    last_s = max(usual_s + _delay_s(delays, learner) for learner in record.late)
    return max(record.round_s, last_s) - record.decodable_s


def _delay_s(delays: Delays, learner: LearnerId) -> float:
    """Injected delay; 0 for learners beyond the N of the configuration."""
    return float(delays[learner]) if learner < len(delays) else 0.0


KEPT = 500
"""Iterations kept in full."""
LINES = 100
"""Lines of the log kept."""


class RunView:
    """State of a run as a page shows it.

    Args:
        name: Name of the run for its user.

    Attributes:
        revision: Rises with every change.
        problem: Reason that no status arrives; empty while the controller answers.
        last: The newest iteration.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.revision = 0
        self.curve = Curve()
        self._config = RunConfig()
        self._environment = ""
        self._delay_model: DelayModel = NoDelay()
        self.settings: JSON = {}
        self.forget()

    def forget(self) -> None:
        """Begin anew: another run takes the place of the one shown."""
        self.revision += 1
        self.problem = "looking for the controller"
        self.last: IterationRecord | None = None
        generation = self.curve.generation + 1
        self.curve = Curve()
        self.curve.generation = generation
        self.code: CodeInUse | None = None
        self._now: RunStatus | None = None
        self._stage: JSON = {"played": None, "busy": False, "problem": ""}
        self._recent: deque[IterationRecord] = deque(maxlen=KEPT)
        self._log: deque[LogLine] = deque(maxlen=LINES)
        self._begun: dict[int, int] = {}
        self._evaluations: Sequence[EvaluationRecord] = ()

    def is_of(self, config: RunConfig, model: DelayModel) -> None:
        """Set the configuration and the delay model of the run."""
        self._config, self._delay_model = config, model
        self._environment, self.settings = config.environment.name, settings_of(config)

    def staged(self, **facts: object) -> None:
        """Record the episode that was played, or why there is none."""
        self._stage = {**self._stage, **facts}
        self.revision += 1

    def stands(self, now: RunStatus, code: CodeInUse | None) -> None:
        """Add a status of the run."""
        self._log.extend(of_statuses(self._now, now))
        self._now, self.code, self.problem = now, code, ""
        self.revision += 1

    def away(self, problem: str) -> None:
        """Record that the controller does not answer."""
        if not self.problem:
            committed = 0 if self.last is None else self.last.iteration + 1
            self._log.append(LogLine(iteration=committed, kind="fault", text=problem))
        self.problem = problem
        self.revision += 1

    def committed(self, records: Iterable[IterationRecord]) -> None:
        """Add iterations; one of a later term supersedes itself and those after it."""
        for record in records:
            if not stand(self._recent, record):
                continue
            self._log.extend(of_records(self.last, record))
            if self.last is not None and record.iteration <= self.last.iteration:
                self.curve.forget(record.iteration)
            self.curve.extend(record.iteration, _numbers(record, self._saved_s(record)))
            self._begun.setdefault(record.term, record.iteration)
            self.last = record
        self.revision += 1

    def evaluated(self, evaluations: Sequence[EvaluationRecord]) -> None:
        """Set the evaluations of the run's policies."""
        self._evaluations = evaluations
        self.revision += 1

    def evaluations(self) -> list[JSON]:
        """Intervals by tag, marked if a later term superseded them."""
        return [
            {
                "iteration": evaluation.iteration,
                "superseded": evaluation.superseded(self._begun),
                **intervals(evaluation),
            }
            for evaluation in self._evaluations
        ]

    def _references(self) -> JSON:
        """Mean returns and win rates of reference policies, by name and tag, if any were played."""
        known = [each.references for each in self._evaluations if each.references]
        return {
            name: {tag: interval.mean for tag, interval in intervals(played).items()}
            for name, played in (known[-1].items() if known else ())
        }

    def _saved_s(self, record: IterationRecord) -> float:
        delays = self._delay_model.delays(
            seed=self._config.seed,
            iteration=record.iteration,
            learners=self._config.learners,
        )
        saved = saved_s(record, delays)
        return saved if isfinite(saved) else 0.0

    def find(self, iteration: int) -> IterationRecord | None:
        """A recent iteration; None if it is not kept."""
        return next((record for record in self._recent if record.iteration == iteration), None)

    def facts(self) -> JSON:
        """All facts but the curve, the evaluations, the settings and the code."""
        status = Status(now=self._now or RunStatus(), records=list(self._recent))
        return {
            "status": status.facts(),
            "name": self.name,
            "problem": self.problem,
            "environment": self._environment,
            "stage": self._stage,
            "references": self._references(),
            "totals": {name: self.curve.total(name) for name in TOTALS},
            "round": None if self.last is None else self.round(self.last),
            "log": [line._asdict() for line in reversed(self._log)],
        }

    def round(self, record: IterationRecord) -> JSON:
        """An iteration with a lane for each learner that was assigned a row."""
        return {
            "iteration": record.iteration,
            "tolerance": record.tolerance,
            "round_s": record.round_s,
            "decodable_s": record.decodable_s,
            "saved_s": self._saved_s(record),
            "received": record.received,
            "late": record.late,
            "exact": record.exact,
            "condition": record.condition,
            "error_bound": record.error_bound,
            "digest": record.update_digest,
            "lanes": [
                {
                    "learner": learner,
                    "rows": list(record.rows_of(learner)),
                    "spans": spans(record, learner),
                }
                for learner in sorted(record.assigned_s)
            ],
        }


REPEATED = ("return_mean", "battle_won_mean")
"""Statistics that other columns show."""
OF_ROUNDS = ("time/round_s", "code/late", "code/condition", STEPS_PER_S)
"""Tags of the columns that do not tell of learning."""


def _numbers(record: IterationRecord, saved_s: float) -> dict[str, float]:
    """Columns of the curve: numbers by tag, and those that the page alone shows."""
    numbers = scalars(record)
    return {
        **{tag: value for tag, value in learning(record).items() if tag not in REPEATED},
        **{tag: numbers[tag] for tag in OF_ROUNDS if tag in numbers},
        "time/iteration_s": record.spent_s,
        "saved_s": saved_s,
        "inexact": not record.exact,
        "audited": sum(record.audited.values()),
    }


TOTALS = ("time/round_s", "saved_s", "code/late", "inexact", "audited")
"""Columns of the curve whose totals are shown."""


MOST_SETTINGS, LONGEST = 500, 200
"""Most settings shown, and most characters of a value."""


def settings_of(config: RunConfig) -> JSON:
    """Settings by which runs are told apart, by dotted key, as text."""
    found = islice(compared(config).items(), MOST_SETTINGS)
    return {brief(key): brief(str(value), limit=LONGEST) for key, value in found}


def code_facts(code: CodeInUse) -> JSON:
    """C without its empty rows, the holders of the others, and the reason of its choice."""
    rows = np.flatnonzero(code.matrix.any(axis=1)).tolist()
    return {
        "epoch": code.epoch,
        "name": code.name,
        "tolerance": code.tolerance,
        "certificate": code.certificate,
        "matrix": np.round(code.matrix[rows], 4).tolist(),
        "holders": [code.holders.get(row) for row in rows],
        "plan": None if code.plan is None else asdict(code.plan),
    }
