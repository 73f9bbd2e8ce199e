"""The claims of [Wang21] on times, tested on a table of them.

Of the observations of Sec. V-C (i) to (iv) are about delays, (a) to (h) about the order of codes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from fullrank.codes import make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank_coded_maddpg.published import CODES, LEARNERS, TASKS, TOTALLED, Wang21Task
from fullrank_coded_maddpg.timing import ROWS, Setting
from fullrank_papers.claims import ClaimResult, Strength, judge

SLACK = 0.10
"""Share of the delay (or of the time without stragglers) within which times count as equal."""

LEAST_ROUNDS = 50
"""Least number of rounds that distinguishes two probabilities."""
FEW = 2
"""Stragglers that count as few."""
DENSE, LIGHT = ("mds", "random_sparse"), ("replication", "ldpc")

TimeTable = Mapping[tuple[str, int, str, int], float]
"""Seconds by (task, M, code, k)."""


def table(times: Mapping[Setting, float]) -> TimeTable:
    """Times by the numbers of the paper's table."""
    return {(s.task.name, s.agents, s.code, s.stragglers): t for s, t in times.items()}


def published() -> TimeTable:
    """The published times."""
    return {
        (task.name, int(agents), code, k): time
        for task in TASKS.values()
        for agents, by_code in task.published.items()
        for code, times in by_code.items()
        for k, time in zip(task.stragglers, times, strict=True)
    }


def judge_times(measured: TimeTable, strength: Strength) -> list[ClaimResult]:
    """All claims on times that some row of the table can test.

    Args:
        measured: The times.
        strength: Strength of the table's numbers.
    """
    rows = [
        _TaskTimes(task, agents, measured)
        for task, agents in ROWS
        if (task.name, agents, "uncoded", 0) in measured
    ]
    results = (_all(claim, rows, check, strength) for claim, check in CLAIMS.items())
    return [result for result in results if result is not None]


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
        return TOTALLED * self.task.delay_s

    @property
    def small(self) -> bool:
        """True if the effect of stragglers counts as small; the paper says so of navigation."""
        return not self.task.competitive

    @property
    def spare(self) -> int:
        """The number of redundant learners, N - M."""
        return LEARNERS - self.agents

    def __str__(self) -> str:
        return f"{self.task.name}, M = {self.agents}"


ClaimCheck = Callable[[_TaskTimes], list[str] | None]
"""Evidence against a claim in a row; None where it is not testable."""


def _all(
    claim: str, rows: Sequence[_TaskTimes], check: ClaimCheck, strength: Strength
) -> ClaimResult | None:
    """Result of a claim, which must hold in every row that can test it; None if there is none."""
    outcomes = [(row, check(row)) for row in rows]
    tested = [(row, failed) for row, failed in outcomes if failed is not None]
    if not tested:
        return None
    failures = [f"{row}: {text}" for row, failed in tested for text in failed]
    return judge(
        claim, failures, grounds=f"in {len(tested)} of {len(rows)} rows", strength=strength
    )


def _order(row: _TaskTimes) -> list[str] | None:
    first = {code: times[0] for code in CODES if (times := row.times(code)) is not None}
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
    return _unexpected(row, "uncoded", dict.fromkeys(row.task.stragglers[1:], 1.0))


def _dense_are_flat(row: _TaskTimes) -> list[str] | None:
    return _dense_delays(row, lambda k: k <= row.spare, paid=0.0)


def _dense_pay(row: _TaskTimes) -> list[str] | None:
    return _dense_delays(row, lambda k: k > row.spare, paid=1.0)


def _dense_delays(
    row: _TaskTimes, chosen: Callable[[int], bool], *, paid: float
) -> list[str] | None:
    """Evidence that MDS or sparse pay another number of delays at the chosen k."""
    ks = {k: paid for k in row.task.stragglers[1:] if chosen(k)}
    tested = [code for code in DENSE if row.times(code) is not None] if ks else []
    return [text for code in tested for text in _unexpected(row, code, ks)] if tested else None


def _gradual(row: _TaskTimes) -> list[str] | None:
    """Evidence that time falls with k, or that it jumps where some sets decode and some do not."""
    wrong, tested = [], False
    for code in LIGHT:
        if (times := row.times(code)) is not None:
            tested = True
            if any(b < a - SLACK * row.delay for a, b in pairwise(times)):
                wrong.append(f"{code} is faster with more stragglers")
            for k, time in zip(row.task.stragglers[1:], times[1:], strict=True):
                decodable = _decodable(code, row.agents, k)
                paid = (time - times[0]) / row.delay
                if SLACK < decodable < 1 - SLACK and not SLACK < paid < 1 - SLACK:
                    wrong.append(
                        f"{code} at k = {k} pays {paid:.2f} delays where {decodable:.0%} of the "
                        "sets decode"
                    )
    return wrong if tested else None


@cache
def _decodable(code: str, agents: int, k: int) -> float:
    """Probability that a code survives k lost learners."""
    assigned = make_code(code, rows=LEARNERS, units=agents, seed=0)
    return decodable_given_losses(assigned, k).value


def _unexpected(row: _TaskTimes, code: str, delays: Mapping[int, float]) -> list[str]:
    """Evidence that stragglers cost other numbers of delays, by k, than expected."""
    times = row.times(code)
    assert times is not None
    by_stragglers = dict(zip(row.task.stragglers, times, strict=True))
    wrong = []
    for k, expected in delays.items():
        paid = (by_stragglers[k] - times[0]) / row.delay
        if abs(paid - expected) > SLACK:
            wrong.append(f"{code} at k = {k} pays {paid:.2f} delays, not {expected:.2f}")
    return wrong


def _worse(
    row: _TaskTimes, better: Sequence[str], worse: Sequence[str], ks: Sequence[int]
) -> list[str] | None:
    """Evidence that a code of the first group takes longer than one of the second at some k.

    None unless both groups were run.
    """
    times = {code: row.times(code) for code in (*better, *worse)}
    by_code = {
        code: dict(zip(row.task.stragglers, found, strict=True))
        for code, found in times.items()
        if found is not None
    }
    pairs = [
        (k, quick, slow)
        for k in ks
        for quick in better
        for slow in worse
        if quick in by_code and slow in by_code
    ]
    if not pairs:
        return None
    return [
        f"{slow} at k = {k} takes {by_code[slow][k]:.2f} s, {quick} {by_code[quick][k]:.2f} s"
        for k, quick, slow in pairs
        if by_code[slow][k] < by_code[quick][k]
    ]


def _others(*codes: str) -> list[str]:
    return [code for code in CODES if code not in codes]


def _uncoded_best(row: _TaskTimes) -> list[str] | None:
    ks = row.task.stragglers if row.small else [0]
    return _worse(row, ["uncoded"], _others("uncoded"), ks)


def _uncoded_worse_than_most(row: _TaskTimes) -> list[str] | None:
    """Evidence that at most half of the coding schemes are quicker, within their tolerance."""
    times = {code: found for code in CODES if (found := row.times(code)) is not None}
    ks = [(i, k) for i, k in enumerate(row.task.stragglers) if 0 < k <= row.spare]
    if row.small or not ks or len(times) < len(CODES):
        return None
    wrong = []
    for i, k in ks:
        quicker = sum(times[code][i] < times["uncoded"][i] for code in _others("uncoded"))
        if quicker <= len(_others("uncoded")) / 2:
            wrong.append(f"at k = {k} {quicker} of 4 schemes are quicker")
    return wrong


def _mds_best(row: _TaskTimes) -> list[str] | None:
    ks = [k for k in row.task.stragglers if 0 < k < row.spare]
    return None if row.small else _worse(row, ["mds"], ["uncoded", *LIGHT], ks)


def _mds_worst(row: _TaskTimes) -> list[str] | None:
    return _worse(row, _others("mds"), ["mds"], row.task.stragglers) if row.small else None


def _sparse_like_mds(row: _TaskTimes) -> list[str] | None:
    dense = [row.times(code) for code in DENSE]
    if dense[0] is None or dense[1] is None:
        return None
    return [
        f"at k = {k} {sparse:.2f} s against {mds:.2f} s"
        for k, mds, sparse in zip(row.task.stragglers, dense[0], dense[1], strict=True)
        if abs(sparse / mds - 1.0) > SLACK
    ]


def _light_best(row: _TaskTimes) -> list[str] | None:
    ks = [k for k in row.task.stragglers if row.small or k > row.spare]
    return _worse(row, LIGHT, DENSE, ks)


def _light_for_few(row: _TaskTimes) -> list[str] | None:
    """Evidence that with a large effect and one or two stragglers another code is quickest."""
    times = {code: found for code in CODES if (found := row.times(code)) is not None}
    few = [(i, k) for i, k in enumerate(row.task.stragglers) if 0 < k <= FEW]
    if row.small or not few or len(times) < len(CODES):
        return None
    return [
        f"{best} is quickest at k = {k}"
        for i, k in few
        if (best := min(times, key=lambda code: times[code][i])) not in LIGHT
    ]


def _dense_best(row: _TaskTimes) -> list[str] | None:
    ks = [] if row.small else [k for k in row.task.stragglers if k > row.spare]
    return _worse(row, DENSE, ["uncoded", *LIGHT], ks)


CLAIMS: Mapping[str, ClaimCheck] = {
    "(i) Without stragglers uncoded is fastest, MDS and sparse slowest.": _order,
    "(ii) Uncoded pays five delays from the first straggler on, however many.": _uncoded_jumps,
    "(iii) MDS and sparse are flat up to k = N - M.": _dense_are_flat,
    "(iii) Beyond, they pay five delays.": _dense_pay,
    "(iv) Replication and LDPC degrade gradually.": _gradual,
    "(a) Uncoded is best with no stragglers, or a small effect (navigation).": _uncoded_best,
    "(b) With a large effect most codes beat it, if k <= N - M.": _uncoded_worse_than_most,
    "(c) With a large effect and k < N - M, MDS beats all but random sparse.": _mds_best,
    "(d) With a small effect MDS is worst.": _mds_worst,
    "(e) Random sparse performs like MDS.": _sparse_like_mds,
    "(f) Replication and LDPC beat dense codes if the effect is small, or k > N - M.": _light_best,
    "(g) Guideline: for a large effect and few stragglers LDPC or replication.": _light_for_few,
    "(h) Guideline: for a large effect and k > N - M MDS or random sparse.": _dense_best,
}
"""Claims of Sec. V-C by text; "many" stragglers are k > N - M, as in Figs. 4(c, d) and 5(c, d)."""
