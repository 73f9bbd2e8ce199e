"""Candidate codes, and the plan that chooses one by its forecasts."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np

from fullrank.codes.analysis import condition_statistics
from fullrank.codes.base import Code, codes, make_code
from fullrank.codes.learner_codes import code_for_learners
from fullrank.codes.targets import each_unit, rank_of
from fullrank.common.errors import CodeError
from fullrank.common.types import IntArray, Matrix, Times
from fullrank.planning.arrival import arrivals_of
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.delay_model import Scenarios
from fullrank.planning.grace import Grace, Return, deciding_returns, played_through
from fullrank.planning.history import again_s, arrival_times
from fullrank.planning.tuning import TUNING

EXACT_CONDITION = 2.0**17
"""Bound on M kappa for an exact decode: M 2^-52 kappa |u| < 2^-36 with |u| <= 1/2, and a factor of
two to spare."""
TICKS = 1_000_000
"""Ticks of a forecast in a second."""
HEDGED = "hedged"
"""Last word of the label of a forecast in which idle learners compute for late ones."""
CHECKED_PATTERNS = 500
"""Loss patterns at full tolerance whose conditions are computed, at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A family with its parameters, built for N learners and M units."""

    name: str
    params: dict[str, Any]
    code: Code

    @property
    def label(self) -> str:
        """The form of the command line: ``cyclic,tolerance=2``, or the name without parameters."""
        return ",".join([self.name, *(f"{key}={value}" for key, value in self.params.items())])


def candidates(
    *, learners: int, units: int, seed: int, target: Matrix | None = None, tolerance: int = 1
) -> tuple[Candidate, ...]:
    """All codes of these sizes that decode exactly after any loss they tolerate, least load first.

    Families with a ``tolerance`` appear once for each rung of ``ladder`` that gives another code,
    the others once; of equal matrices the first one, or that without a code. Where no redundant
    code has a row a learner, those with several are candidates, beside families whose codes always
    have several.

    Args:
        learners: N.
        units: M.
        seed: Seed of the random constructions.
        target: T that the codes have to recover; by default every unit.
        tolerance: Least number of losses that they survive.
    """
    wanted = each_unit(units) if target is None else target
    known = _candidates(learners, units, seed, np.asarray(wanted, np.float64).tobytes())
    return tuple(option for option in known if option.code.tolerance >= tolerance)


@cache
def _candidates(learners: int, units: int, seed: int, target: bytes) -> tuple[Candidate, ...]:
    """Candidates by a key that is hashable: T is given as its entries."""
    wanted = np.frombuffer(target).reshape(-1, units)

    def one_row(name: str, params: dict[str, Any]) -> Code:
        return make_code(name, rows=learners, units=units, seed=seed, target=wanted, **params)

    def several_rows(name: str, params: dict[str, Any]) -> Code:
        family = codes.build(name, **params)
        return code_for_learners(family, learners=learners, units=units, seed=seed, target=wanted)

    alone = _options(one_row, spare=learners - rank_of(wanted))
    found = [option.code for option in alone.values()]
    if not any(code.rows_per_learner == 1 <= code.tolerance for code in found):
        alone = _options(several_rows, spare=learners - 1) | alone
    elif "uncoded" not in alone:  # a sum, by fewer learners than units
        code = several_rows("uncoded", {})
        alone["uncoded"] = Candidate(name="uncoded", params={}, code=code)
    distinct: dict[tuple[int, bytes], Candidate] = {}
    for option in sorted(alone.values(), key=_effort):
        code = option.code
        distinct.setdefault((code.rows_per_learner, code.matrix.tobytes()), option)
    return tuple(distinct.values())


def _effort(option: Candidate) -> tuple[int, int, bool]:
    """Order of the candidates: units of the busiest learner, of all, and no code before others."""
    load = option.code.load
    return int(load.max()), int(load.sum()), option.name != "uncoded"


def _options(build: Callable[[str, dict[str, Any]], Code], *, spare: int) -> dict[str, Candidate]:
    """Candidates that a construction gives by label, with tolerances up to ``spare``."""
    options: dict[str, Candidate] = {}
    for name, params in _settings(spare):
        code = _built(build, name, params)
        if code is not None and _is_exact(code):
            parameters = codes.get(name).tolerating(code.tolerance) or {}
            option = Candidate(name=name, params=parameters, code=code)
            options.setdefault(option.label, option)
    return options


def ladder(most: int) -> list[int]:
    """Tolerances to try up to ``most``: the first eight, then steps of a quarter.

    >>> ladder(7), ladder(40)
    ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 40])
    """
    rungs = [1]
    while (following := max(rungs[-1] + 1, rungs[-1] * 5 // 4)) <= most:
        rungs.append(following)
    return rungs if rungs[-1] == most or most < 1 else [*rungs, most]


def _settings(spare: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in codes:
        family = codes.get(name)
        settings = [family.tolerating(losses) for losses in ladder(spare)]
        yield from ((name, params) for params in settings if params is not None)
        if family.tolerating(0) is None:
            yield name, {}


def _built(
    build: Callable[[str, dict[str, Any]], Code], name: str, params: dict[str, Any]
) -> Code | None:
    with warnings.catch_warnings(action="ignore"):  # about conditions, which are tested here
        try:
            return build(name, params)
        except CodeError:
            return None


def _is_exact(code: Code) -> bool:
    conditions = condition_statistics(code, code.tolerance, limit=CHECKED_PATTERNS)
    return conditions.worst < EXACT_CONDITION / code.units


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Round times of a candidate in K scenarios, in ticks of a microsecond.

    Sums of integers, unlike sums of floats, are the same on every processor.
    """

    label: str
    ticks: IntArray
    """Round time in each scenario, shape (K,)."""
    total: int
    """Sum of the round times."""
    cautious: int
    """The sum at one standard error above the mean: rare lateness may be less rare than it was
    observed."""

    @classmethod
    def of(cls, label: str, ticks: IntArray, *, evidence: float) -> Self:
        """Forecast of a label from its round times; ``evidence`` is that of ``Scenarios``."""
        rounds = ticks.tolist()
        total = sum(rounds)
        spread = len(rounds) * sum(each * each for each in rounds) - total * total
        error = math.isqrt(spread // max(1, round(evidence)))
        return cls(label=label, ticks=ticks, total=total, cautious=total + error)

    @property
    def mean_s(self) -> float:
        """Mean round time, seconds."""
        return self.total / (len(self.ticks) * TICKS)

    @property
    def cautious_s(self) -> float:
        """The same at one standard error above the mean, seconds."""
        return self.cautious / (len(self.ticks) * TICKS)

    def rank(self, round_s: float) -> float:
        """The share of scenarios quicker than a round, plus half the share of ties."""
        quicker = self.ticks < round_s * TICKS * (1.0 - TUNING.rank_tie) - 1
        not_longer = self.ticks <= round_s * TICKS * (1.0 + TUNING.rank_tie) + 1
        return float((quicker.mean() + not_longer.mean()) / 2)

    def __str__(self) -> str:
        return f"{self.label} ({self.mean_s:.4g} s)"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A chosen code, and the reason."""

    candidate: Candidate
    changed: bool
    reason: str
    forecasts: tuple[Forecast, ...] = ()
    """Forecasts of all candidates, the quickest first; empty before ``Tuning.first`` iterations."""


def forecast(
    candidate: Candidate,
    moved: Traffic,
    likely: Scenarios,
    links: Links,
    *,
    max_variance: float = math.inf,
    holders: int = 1,
    hedged: bool = False,
) -> Forecast:
    """Simulate the scenarios with a code whose n-th share is held by the n-th learner.

    Args:
        candidate: A code of at most as many learners as the scenarios have.
        moved: Bytes of its shares.
        likely: The scenarios.
        links: Between the services.
        max_variance: Limit of ``Arrivals``.
        holders: Of each unit, as in ``Arrivals``.
        hedged: Idle learners compute for late ones, as by ``controller.undecodable = "hedge"``.
    """
    code = candidate.code
    working = np.flatnonzero(code.load)
    unit_s, finish_s = likely.unit_s[:, : code.learners], likely.delay_s[:, : code.learners].copy()
    finish_s[:, working] = arrival_times((code.load * unit_s + finish_s)[:, working], moved, links)
    finish = _ticks(finish_s)
    order = working[np.argsort(finish[:, working], axis=1, kind="stable")]
    needed = arrivals_of(code, max_variance, holders).needed(order)
    ticks = finish[np.arange(len(order)), order[np.arange(len(order)), needed - 1]]
    label = candidate.label
    if hedged:
        label = f"{label},{HEDGED}"
        unit = _ticks(unit_s + again_s(links, moved, code))
        ticks = _hedged(
            ticks,
            lambda those: deciding_returns(
                code, finish[those], unit[those], order=order[those], needed=needed[those]
            ),
        )
    return Forecast.of(label, ticks, evidence=likely.evidence)


def _hedged(ticks: IntArray, returns_of: Callable[[IntArray], Iterator[list[Return]]]) -> IntArray:
    """Round times in which late learners are made up for, under a grace learnt from some of them.

    Args:
        ticks: Round times without, shape (K,).
        returns_of: Learners that decide some of the rounds, given by their indices.
    """
    grace, every = Grace(), np.arange(len(ticks))
    for returns in returns_of(every[:: max(1, len(ticks) // TUNING.grace_rounds)]):
        grace.play(returns)
    due, shorter = grace.seconds, ticks.copy()
    late = every[ticks > due]
    shorter[late] = [round(played_through(returns, due)[0]) for returns in returns_of(late)]
    return shorter


def _ticks(times: Times) -> IntArray:
    """Seconds as the nearest numbers of ticks."""
    return np.rint(times * TICKS).astype(np.int64)
