"""The claims of [Wang21] on times, tested on a table of them.

Of the observations of Sec. V-C (i) to (iv) are about delays, (a) to (h) about the order of codes.
Small and large effects are those of a delay in multiples of an uncoded iteration: 0.2 and 0.3 in
the paper's navigation, 1.2 to 2.1 in its other tasks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank_coded_maddpg.published import CODES, LEARNERS, MATRIX, TASKS, TOTALLED, Wang21Task
from fullrank_coded_maddpg.timing import ROWS, Setting
from fullrank_papers.claims import ClaimResult, Strength, judge, untested

SLACK = 0.10
"""Share of the delay (or of a time, in (e)) within which times count as equal."""
SMALL, LARGE = 0.5, 4.0
"""Largest delays in iterations whose effect counts as small, and as large."""

LEAST_ROUNDS = 50
"""Least number of rounds that distinguishes two probabilities."""
FEW = 2
"""Stragglers that count as few."""
DENSE, LIGHT = ("mds", "random_sparse"), ("replication", "ldpc")

TimeTable: TypeAlias = Mapping[tuple[str, int, str, int], float]
"""Seconds by (task, M, code, k)."""
TimesRow: TypeAlias = tuple[str, int]
"""A task and M."""


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


class RowMachines(NamedTuple):
    """The machines of a row."""

    unit_s: float = 0.0
    """Seconds of a unit; 0 where all rows of a dense code take as long."""
    slower: float = 1.0
    """Delays in those of the paper."""


def judge_times(
    measured: TimeTable,
    strength: Strength,
    machines: Mapping[TimesRow, RowMachines] = MappingProxyType({}),
) -> list[ClaimResult]:
    """All claims on times.

    Args:
        measured: The times.
        strength: Strength of the table's numbers.
        machines: Machines by row, where they are not the paper's.
    """
    rows = [
        _TaskTimes(task, agents, measured, machines.get((task.name, agents), RowMachines()))
        for task, agents in ROWS
        if (task.name, agents, "uncoded", 0) in measured
    ]
    return [_all(claim, rows, check, strength) for claim, check in CLAIMS.items()]


@dataclass(frozen=True, slots=True)
class _TaskTimes:
    """A line of the paper's table: one task and M."""

    task: Wang21Task
    agents: int
    measured: TimeTable
    machines: RowMachines

    @property
    def times(self) -> Mapping[str, Mapping[int, float]]:
        """Times by k of the paper's codes that were run for each k."""
        return {code: by_k for code in CODES if (by_k := self.by_k(code))}

    def by_k(self, code: str) -> Mapping[int, float]:
        """Times of a code by k; empty unless it was run for each k."""
        keys = {k: (self.task.name, self.agents, code, k) for k in self.task.stragglers}
        if not self.measured.keys() >= {*keys.values()}:
            return {}
        return {k: self.measured[key] for k, key in keys.items()}

    @property
    def delay(self) -> float:
        """Delay of five iterations that all wait for a straggler."""
        return TOTALLED * self.task.delay_s * self.machines.slower

    @property
    def slack(self) -> float:
        """Difference of times that counts as none."""
        return SLACK * self.delay

    @property
    def effect(self) -> float:
        """The delay in iterations without stragglers."""
        return self.delay / self.measured[self.task.name, self.agents, "uncoded", 0]

    @property
    def small(self) -> bool:
        """True if the effect of stragglers counts as small."""
        return self.effect <= SMALL

    @property
    def large(self) -> bool:
        """True if it counts as large."""
        return SMALL < self.effect <= LARGE

    def alike(self, code: str) -> bool:
        """True if all rows of a dense code take about as long, as the paper's of M units do."""
        lightest = int(made(code, self.agents).load.min())
        return TOTALLED * (self.agents - lightest) * self.machines.unit_s <= self.slack

    @property
    def spare(self) -> int:
        """The number of redundant learners, N - M."""
        return LEARNERS - self.agents

    def __str__(self) -> str:
        return f"{self.task.name} {self.agents}"


ClaimCheck = Callable[[_TaskTimes], list[str] | None]
"""Evidence against a claim in a row; None where it is not testable."""


def _all(
    claim: str, rows: Sequence[_TaskTimes], check: ClaimCheck, strength: Strength
) -> ClaimResult:
    """Result of a claim, which must hold in every row that has its premise."""
    outcomes = [(row, check(row)) for row in rows]
    tested = [(row, failed) for row, failed in outcomes if failed is not None]
    if not tested:
        return untested(claim, "no row has its premise")
    failures = [f"{row}: {text}" for row, failed in tested for text in failed]
    return judge(
        claim, failures, grounds=f"in {len(tested)} of {len(rows)} rows", strength=strength
    )


def _order(row: _TaskTimes) -> list[str] | None:
    first = {code: by_k[0] for code, by_k in row.times.items()}
    if "uncoded" not in first or len(first) < 3:
        return None
    dense = {code: time for code, time in first.items() if code in ("mds", "random_sparse")}
    sparse = {code: time for code, time in first.items() if code not in dense}
    wrong = []
    if first["uncoded"] > min(first.values()) + row.slack:
        wrong.append(f"uncoded takes {first['uncoded']:.2f} s of {min(first.values()):.2f} s")
    if dense and min(dense.values()) < max(sparse.values()) - row.slack:
        wrong.append(f"dense {min(dense.values()):.2f} s, sparse {max(sparse.values()):.2f} s")
    return wrong


def _uncoded_jumps(row: _TaskTimes) -> list[str] | None:
    if "uncoded" not in row.times:
        return None
    return _unexpected(row, "uncoded", row.task.stragglers[1:], paid=1.0)


def _dense_are_flat(row: _TaskTimes) -> list[str] | None:
    return _dense_delays(row, lambda k: k <= row.spare, paid=0.0)


def _dense_pay(row: _TaskTimes) -> list[str] | None:
    codes = [code for code in (*DENSE, MATRIX) if row.alike(code)]
    return _dense_delays(row, lambda k: k > row.spare, paid=1.0, codes=codes)


def _dense_delays(
    row: _TaskTimes, chosen: Callable[[int], bool], *, paid: float, codes: Sequence[str] = DENSE
) -> list[str] | None:
    """Evidence that MDS or sparse pay another number of delays at the chosen k."""
    ks = [k for k in row.task.stragglers[1:] if chosen(k)]
    tested = [code for code in codes if row.by_k(code)] if ks else []
    found = [text for code in tested for text in _unexpected(row, code, ks, paid=paid)]
    return found if tested else None


def _gradual(row: _TaskTimes) -> list[str] | None:
    """Evidence that time falls with k, or that it jumps where some sets decode and some do not."""
    wrong, light = [], {code: row.times[code] for code in LIGHT if code in row.times}
    for code, by_k in light.items():
        if any(b < a - row.slack for a, b in pairwise(by_k.values())):
            wrong.append(f"{code} is faster with more stragglers")
        for k in row.task.stragglers[1:]:
            decodable = _decodable(code, row.agents, k)
            paid = (by_k[k] - by_k[0]) / row.delay
            if SLACK < decodable < 1 - SLACK and not SLACK < paid < 1 - SLACK:
                wrong.append(
                    f"{code} at k = {k} pays {paid:.2f} delays where {decodable:.0%} of the "
                    "sets decode"
                )
    return wrong if light else None


@cache
def _decodable(code: str, agents: int, k: int) -> float:
    """Probability that a code survives k lost learners."""
    return decodable_given_losses(made(code, agents), k).value


@cache
def made(code: str, agents: int) -> Code:
    """A code for the paper's learners; ``cyclic`` tolerates two of them."""
    params = codes.get(code).tolerating(2) or {}
    return make_code(code, rows=LEARNERS, units=agents, seed=0, **params)


def _unexpected(row: _TaskTimes, code: str, ks: Sequence[int], *, paid: float) -> list[str]:
    """Evidence that stragglers cost another number of delays than expected."""
    by_k = row.by_k(code)
    found = {k: (by_k[k] - by_k[0]) / row.delay for k in ks}
    return [
        f"{code} at k = {k} pays {delays:.2f} delays, not {paid:.2f}"
        for k, delays in found.items()
        if abs(delays - paid) > SLACK
    ]


def _worse(
    row: _TaskTimes, better: Sequence[str], worse: Sequence[str], ks: Sequence[int]
) -> list[str] | None:
    """Evidence that a code of the first group takes longer than one of the second at some k.

    None unless both groups were run.
    """
    times = row.times
    pairs = [
        (k, quick, slow)
        for k in ks
        for quick in better
        for slow in worse
        if quick in times and slow in times
    ]
    if not pairs:
        return None
    return [
        f"{slow} at k = {k} takes {times[slow][k]:.3g} s, {quick} {times[quick][k]:.3g} s"
        for k, quick, slow in pairs
        if times[slow][k] < times[quick][k] - row.slack
    ]


def _others(*codes: str) -> list[str]:
    return [code for code in CODES if code not in codes]


def _uncoded_best(row: _TaskTimes) -> list[str] | None:
    if not row.small:
        return None
    return _worse(row, ["uncoded"], _others("uncoded"), row.task.stragglers)


def _uncoded_worse_than_most(row: _TaskTimes) -> list[str] | None:
    """Evidence that at most half of the coding schemes are quicker, within their tolerance."""
    times, ks = row.times, [k for k in row.task.stragglers if 0 < k <= row.spare]
    if not row.large or not ks or len(times) < len(CODES):
        return None
    wrong = []
    for k in ks:
        most = times["uncoded"][k] + row.slack
        as_quick = sum(times[code][k] < most for code in _others("uncoded"))
        if as_quick <= len(_others("uncoded")) / 2:
            wrong.append(f"at k = {k} {as_quick} of 4 schemes are as quick")
    return wrong


def _mds_best(row: _TaskTimes) -> list[str] | None:
    ks = [k for k in row.task.stragglers if 0 < k < row.spare]
    return _worse(row, ["mds"], ["uncoded", *LIGHT], ks) if row.large else None


def _mds_worst(row: _TaskTimes) -> list[str] | None:
    return _worse(row, _others("mds"), ["mds"], row.task.stragglers) if row.small else None


def _sparse_like_mds(row: _TaskTimes) -> list[str] | None:
    if not row.times.keys() >= {*DENSE}:
        return None
    mds, sparse = (row.times[code] for code in DENSE)
    return [
        f"at k = {k} {sparse[k]:.2f} s against {mds[k]:.2f} s"
        for k in row.task.stragglers
        if abs(sparse[k] / mds[k] - 1.0) > SLACK
    ]


def _light_best(row: _TaskTimes) -> list[str] | None:
    ks = [k for k in row.task.stragglers if row.small or (row.large and k > row.spare)]
    return _worse(row, LIGHT, DENSE, ks)


def _light_for_few(row: _TaskTimes) -> list[str] | None:
    """Evidence that with a large effect and one or two stragglers another code is quickest."""
    times, few = row.times, [k for k in row.task.stragglers if 0 < k <= FEW]
    if not row.large or not few or len(times) < len(CODES):
        return None
    quickest = {k: min(times, key=lambda code: times[code][k]) for k in few}
    return [
        f"{best} is quickest at k = {k}"
        for k, best in quickest.items()
        if times[best][k] < min(times[code][k] for code in LIGHT) - row.slack
    ]


def _dense_best(row: _TaskTimes) -> list[str] | None:
    ks = [k for k in row.task.stragglers if row.large and k > row.spare]
    return _worse(row, DENSE, ["uncoded", *LIGHT], ks)


CLAIMS: Mapping[str, ClaimCheck] = {
    "(i) Without stragglers uncoded is fastest, MDS and sparse slowest.": _order,
    "(ii) Uncoded pays five delays from the first straggler on, however many.": _uncoded_jumps,
    "(iii) MDS and sparse are flat up to k = N - M.": _dense_are_flat,
    "(iii) Beyond, they pay five delays.": _dense_pay,
    "(iv) Replication and LDPC degrade gradually.": _gradual,
    "(a) With a small effect (navigation) uncoded is best.": _uncoded_best,
    "(b) With a large effect most codes beat it, if k <= N - M.": _uncoded_worse_than_most,
    "(c) With a large effect and k < N - M, MDS beats all but random sparse.": _mds_best,
    "(d) With a small effect MDS is worst.": _mds_worst,
    "(e) Random sparse performs like MDS.": _sparse_like_mds,
    "(f) Replication and LDPC beat dense codes if the effect is small, or k > N - M.": _light_best,
    "(g) Guideline: for a large effect and few stragglers LDPC or replication.": _light_for_few,
    "(h) Guideline: for a large effect and k > N - M MDS or random sparse.": _dense_best,
}
"""Claims of Sec. V-C by text; "many" stragglers are k > N - M, as in Figs. 4(c, d) and 5(c, d)."""
