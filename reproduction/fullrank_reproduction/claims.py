"""The claims of [Wang21], tested on a table of times or a set of runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fullrank.codes import make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank.common.types import JSON
from fullrank_reproduction import wang21
from fullrank_reproduction.claim_results import ClaimResult, Held, judge
from fullrank_reproduction.learning import CENTRALISED, EXACT
from fullrank_reproduction.timing import Setting
from fullrank_reproduction.wang21 import Wang21Task

SLACK = 0.10
"""Share of the delay (or of the time without stragglers) within which times count as equal."""

LEAST_ROUNDS = 50
"""Least number of rounds that distinguishes two probabilities."""

TimeTable = Mapping[tuple[str, int, str, int], float]
"""Seconds by (task, M, code, k)."""


def table(times: Mapping[Setting, float]) -> TimeTable:
    """Times by the numbers of the paper's table."""
    return {(s.task.name, s.agents, s.code, s.stragglers): t for s, t in times.items()}


def judge_times(measured: TimeTable, *, rounds: int) -> list[ClaimResult]:
    """Claims (i) to (iv), for every task and M of the table.

    Args:
        measured: The times.
        rounds: Rounds behind each time.
    """
    rows = [
        _TaskTimes(task, agents, measured)
        for task in wang21.TASKS
        for agents in wang21.AGENTS
        if (task.name, agents, "uncoded", 0) in measured
    ]
    return [
        _all("(i) Without stragglers uncoded is fastest, MDS and sparse slowest.", rows, _order),
        _all(
            "(ii) Uncoded pays five delays from the first straggler on, however many.",
            rows,
            _uncoded_jumps,
        ),
        _all(
            "(iii) MDS and sparse are flat up to k = N - M and pay five delays beyond.",
            rows,
            _dense_are_flat,
        ),
        _all(
            "(iv) Replication and LDPC degrade gradually.",
            rows,
            _gradual if rounds >= LEAST_ROUNDS else _unknown,
        ),
    ]


def judge_learning(runs: Mapping[str, JSON], task: Wang21Task, *, seeds: int) -> ClaimResult:
    """Claim (v): coded and centralised runs learn alike; here they are compared bit by bit."""
    claim = f"(v) Coded training learns what centralised training learns: {task.name}."
    compared, iterations, differing = 0, 0, []
    for seed in range(seeds):
        reference = runs[f"{task.name}-{CENTRALISED}-seed{seed}"]["digests"]
        for code in EXACT:
            run = runs.get(f"{task.name}-{code}-seed{seed}")
            if run is None:
                continue
            compared, iterations = compared + 1, iterations + len(run["digests"])
            if run["digests"] != reference[: len(run["digests"])]:
                differing.append(f"{code} (seed {seed})")
    grounds = f"{compared} coded runs with stragglers: all {iterations} update digests are equal"
    return judge(claim, [f"bits differ: {differing}"] if differing else [], grounds=grounds)


@dataclass(frozen=True, slots=True)
class _TaskTimes:
    """A line of the paper's table: one task and M."""

    task: Wang21Task
    agents: int
    measured: TimeTable

    def times(self, code: str) -> list[float] | None:
        """Times of a code by k; None unless it was run for each k."""
        keys = [(self.task.name, self.agents, code, k) for k in self.task.stragglers]
        return (
            [self.measured[key] for key in keys] if all(k in self.measured for k in keys) else None
        )

    @property
    def delay(self) -> float:
        """Delay of five iterations that all wait for a straggler."""
        return wang21.TOTALLED * self.task.delay_s

    @property
    def spare(self) -> int:
        """The number of redundant learners, N - M."""
        return wang21.LEARNERS - self.agents

    def __str__(self) -> str:
        return f"{self.task.name}, M = {self.agents}"


ClaimCheck = Callable[[_TaskTimes], list[str] | None]
"""Evidence against a claim in a row; None where it is not testable."""


def _all(claim: str, rows: Sequence[_TaskTimes], check: ClaimCheck) -> ClaimResult:
    """Result of a claim, which must hold in every row where it is testable."""
    outcomes = [(row, check(row)) for row in rows]
    tested = [(row, failed) for row, failed in outcomes if failed is not None]
    failures = [f"{row}: {text}" for row, failed in tested for text in failed]
    if not tested:
        return ClaimResult(
            claim=claim, held=Held.NOT_TESTABLE, reason="not run, or in too few rounds"
        )
    return judge(claim, failures, grounds=f"in {len(tested)} of {len(rows)} rows")


def _unknown(row: _TaskTimes) -> None:
    return None


def _order(row: _TaskTimes) -> list[str] | None:
    first = {code: times[0] for code in wang21.CODES if (times := row.times(code)) is not None}
    if "uncoded" not in first or len(first) < 3:
        return None
    dense = {code: time for code, time in first.items() if code in ("mds", "random_sparse")}
    sparse = {code: time for code, time in first.items() if code not in dense}
    wrong = []
    if first["uncoded"] > min(first.values()):
        wrong.append(f"uncoded takes {first['uncoded']:.2f} s of {min(first.values()):.2f} s")
    if dense and min(dense.values()) < max(sparse.values()):
        wrong.append(f"dense {min(dense.values()):.2f} s, sparse {max(sparse.values()):.2f} s")
    return wrong


def _uncoded_jumps(row: _TaskTimes) -> list[str] | None:
    times = row.times("uncoded")
    if times is None:
        return None
    return _unexpected(row, "uncoded", times, [1.0] * (len(times) - 1))


def _dense_are_flat(row: _TaskTimes) -> list[str] | None:
    wrong, tested = [], False
    for code in ("mds", "random_sparse"):
        if (times := row.times(code)) is not None:
            tested = True
            delays = [float(k > row.spare) for k in row.task.stragglers[1:]]
            wrong += _unexpected(row, code, times, delays)
    return wrong if tested else None


def _gradual(row: _TaskTimes) -> list[str] | None:
    """Evidence that time falls with k, or rises by the whole delay where most J still decode.

    The cost exceeds the probability of waiting, because lost rows of a unit are replaced by heavier
    ones.
    """
    wrong, tested = [], False
    for code in ("replication", "ldpc"):
        if (times := row.times(code)) is not None:
            tested = True
            k = row.task.stragglers[1]
            assigned = make_code(code, rows=wang21.LEARNERS, units=row.agents, seed=0)
            paid = (times[1] - times[0]) / row.delay
            if any(b < a - SLACK * row.delay for a, b in pairwise(times)):
                wrong.append(f"{code} is faster with more stragglers")
            if decodable_given_losses(assigned, k).value > SLACK and paid >= 1.0:
                wrong.append(f"{code} at k = {k} pays {paid:.2f} delays at once")
    return wrong if tested else None


def _unexpected(
    row: _TaskTimes, code: str, times: Sequence[float], delays: Sequence[float]
) -> list[str]:
    """Evidence that stragglers cost other numbers of delays than expected."""
    wrong = []
    for k, time, share in zip(row.task.stragglers[1:], times[1:], delays, strict=True):
        paid = (time - times[0]) / row.delay
        if abs(paid - share) > SLACK:
            wrong.append(f"{code} at k = {k} pays {paid:.2f} delays, not {share:.2f}")
    return wrong
