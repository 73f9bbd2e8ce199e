"""Metrics of the controller: the state of the run, and totals over committed iterations."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from fullrank.codes import codes
from fullrank.codes.learner_codes import tolerance_asked_of
from fullrank.net.prometheus import Buckets, Family, counter, gauge, histogram
from fullrank.run.assignment import RowAssignment
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import STEPS_PER_S, scalars
from fullrank.runs.time_budget import budget
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.membership.member import Member
from fullrank_controller.run import Run
from fullrank_controller.watchdog import WRITING, Watchdog


class Totals:
    """A sink of records that adds them up, from the start of this process.

    Args:
        units: M, the units of an iteration.
    """

    def __init__(self, units: int = 1) -> None:
        self._units = units
        self._count: Counter[str] = Counter()
        self._phases_s: defaultdict[str, float] = defaultdict(float)
        self._rounds, self._decoded = Buckets(), Buckets()
        self._arrivals: defaultdict[str, Buckets] = defaultdict(Buckets)
        self._bytes: dict[str, Counter[str]] = {"sent": Counter(), "received": Counter()}
        self._late: Counter[str] = Counter()
        self._returns: dict[str, float] = {}
        self._win_rate: float | None = None
        self._last: IterationRecord | None = None

    def write(self, record: IterationRecord) -> None:
        """Add an iteration."""
        self._last = record
        self._count["rounds"] += 1
        self._count["inexact"] += not record.exact
        self._count["wrong"] += len(record.quarantined)
        self._rounds.add(record.round_s)
        self._decoded.add(record.decode_s)
        for learner, seconds in record.arrival_s.items():
            self._arrivals[str(learner)].add(seconds)
        for phase, seconds in budget(record).items():
            self._phases_s[phase] += seconds
        self._bytes["sent"].update(record.bytes_sent)
        self._bytes["received"].update(record.bytes_received)
        self._late.update(map(str, record.late))
        if record.win_rate is not None:
            self._win_rate = record.win_rate
        returns = record.side_returns.items()
        self._returns.update({side: value for side, value in returns if value is not None})

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def families(self) -> Iterator[Family]:
        """All totals, and gauges of the last iteration."""
        count = self._count
        yield counter("rounds", "Rounds committed.", count["rounds"])
        yield counter("committed_units", "Units committed.", count["rounds"] * self._units)
        yield counter("round_seconds", "Duration of all rounds committed.", self._rounds.sum_s)
        yield histogram("round_duration_seconds", "Rounds, by duration.", {"": self._rounds})
        yield histogram("decode_duration_seconds", "Decodings.", {"": self._decoded})
        yield histogram(
            "arrival_seconds",
            "Rows, by the time from their assignment to their arrival.",
            dict(self._arrivals),
            label="learner",
        )
        yield counter("phase_seconds", "Duration of each phase.", self._phases_s, label="phase")
        yield counter("inexact_rounds", "Rounds committed with an error.", count["inexact"])
        yield counter(
            "audit_mismatches",
            "Contributions that contradicted the committed updates.",
            count["wrong"],
        )
        yield counter(
            "late_rows", "Rows that had not arrived at the commit.", self._late, label="learner"
        )
        yield counter(
            "sent_bytes", "Bytes to learners, by kind.", self._bytes["sent"], label="kind"
        )
        yield counter(
            "received_bytes", "Bytes from learners, by kind.", self._bytes["received"], label="kind"
        )
        yield gauge("return", "Mean return by side.", dict(self._returns), label="side")
        if self._win_rate is not None:
            yield gauge("win_rate", "Share of the latest episodes that were won.", self._win_rate)
        if self._last is not None:
            yield from _last(self._last)


_GAUGES = {
    "code/condition": ("condition", "Condition number of the last C_J."),
    "agent_updates_per_s": ("agent_updates_per_second", "Agents times transitions, per second."),
    STEPS_PER_S: ("env_steps_per_second", "Environment steps per second."),
    "code/received": ("received_rows", "Rows used in the last round."),
    "code/error_bound": ("error_bound", "Largest possible error of an entry."),
}
"""Name and meaning of gauges of the last iteration, by the tags of their numbers."""


def _last(record: IterationRecord) -> Iterator[Family]:
    numbers = scalars(record)
    for tag, (name, text) in _GAUGES.items():
        if tag in numbers:
            yield gauge(name, text, numbers[tag])
    known = {name: value for name, value in record.statistics.items() if value is not None}
    if known:
        yield gauge("statistic", "Statistics of the last iteration.", known, label="name")
    times = {part: numbers.get(f"time/{part}_s") for part in ("play", "update", "iteration")}
    measured = {part: seconds for part, seconds in times.items() if seconds is not None}
    if measured:
        yield gauge("seconds", "Times of the last iteration.", measured, label="part")


def state_metrics(run: str, state: pb.RunState.ValueType, *, committed: int) -> Iterator[Family]:
    """The state of a run, also of one that has ended."""
    states = {name.removeprefix("RUN_STATE_").lower(): value for name, value in pb.RunState.items()}
    del states["unspecified"]
    yield gauge(
        "run_state",
        "1 for the state that the run is in.",
        {name: float(value == state) for name, value in states.items()},
        label="state",
    )
    yield gauge("run", "The run.", {run: 1.0}, label="run")
    yield gauge("iterations_committed", "Iterations committed.", committed)


def run_metrics(run: Run, *, acknowledged: int) -> Iterator[Family]:
    """The current state of the run.

    Args:
        run: The parts of the run.
        acknowledged: One past the last transition that replay has stored.
    """
    identity, progress, roster = run.identity, run.progress, run.roster
    yield from state_metrics(identity.name, progress.state, committed=progress.committed)
    yield gauge("iterations_wanted", "Iterations in all.", progress.iterations)
    yield gauge("term", "Starts and recoveries of the controller.", identity.term)
    yield gauge("learners_attached", "Learners that are attached.", len(roster.members))
    yield gauge("learners_eligible", "Learners that may hold a row.", len(roster.eligible))
    barred = sum(bool(member.quarantined) for member in roster.members)
    yield gauge("learners_quarantined", "Learners that were found wrong.", barred)
    if run.collectors is not None:
        yield from run.collectors.metrics(version=progress.applied)
    yield gauge("replay_acknowledged_position", "One past the last row stored.", acknowledged)
    yield counter(
        "computed_units", "Units that learners have computed.", run.reception.units_computed
    )
    yield counter("lost_rows", "Rows of learners that have left.", roster.lost_rows)
    if run.membership.assignment is not None:
        yield from _code_metrics(run.membership.assignment)


def store_metrics(watchdog: Watchdog) -> Iterator[Family]:
    """Durations of what the store has written."""
    durations = {kind: watchdog.durations[phase] for kind, phase in WRITING.items()}
    text = "Times to write iterations to the journal and the store, or a checkpoint."
    yield histogram("store_seconds", text, durations, label="kind")


def _code_metrics(assignment: RowAssignment[Member]) -> Iterator[Family]:
    code, requested = assignment.code, assignment.requested
    yield gauge("epoch", "Codes assigned so far, less one.", assignment.epoch)
    yield gauge("code_rows", "Rows R of C.", code.rows)
    yield gauge("code_units", "Units M of C.", code.units)
    yield gauge("spares", "Eligible learners without a row.", assignment.spares)
    yield gauge(
        "configured_tolerance",
        "Learners that may be lost in any case where there are as many as the code was asked for.",
        tolerance_asked_of(codes.build(requested.name, **requested.params)),
    )
    yield gauge("tolerance", "Learners that may be lost in any case.", code.tolerance)
    yield gauge(
        "remaining_tolerance",
        "Learners that may still be lost; negative when the guarantee is gone.",
        assignment.remaining_tolerance(),
    )
