"""Candidate codes, and the plan that chooses one by its forecasts."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fullrank.codes.analysis import condition_statistics
from fullrank.codes.base import Code, codes, make_code
from fullrank.codes.learner_codes import code_for_learners
from fullrank.codes.targets import each_unit, rank_of
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix, Times
from fullrank.planning.arrival import arrivals_of
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.delay_model import Scenarios
from fullrank.planning.history import arrival_times
from fullrank.planning.tuning import TUNING

EXACT_CONDITION = 2.0**17
"""Bound on M kappa for an exact decode: M 2^-52 kappa |u| < 2^-36 with |u| <= 1/2, and a factor of
two to spare."""
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
    *, learners: int, units: int, seed: int, target: Matrix | None = None
) -> tuple[Candidate, ...]:
    """All codes of these sizes that survive a loss and decode exactly after any they tolerate.

    Families with a ``tolerance`` appear once for each rung of ``ladder`` that gives another code,
    the others once. Where no code has a row a learner, those with several are candidates, beside
    families whose codes always have several.

    Args:
        learners: N.
        units: M.
        seed: Seed of the random constructions.
        target: T that the codes have to recover; by default every unit.
    """
    wanted = each_unit(units) if target is None else target
    return _candidates(learners, units, seed, np.asarray(wanted, np.float64).tobytes())


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
    if not any(option.code.rows_per_learner == 1 for option in alone.values()):
        alone = _options(several_rows, spare=learners - 1) | alone
    return tuple(alone.values())


def _options(build: Callable[[str, dict[str, Any]], Code], *, spare: int) -> dict[str, Candidate]:
    """Candidates that a construction gives by label, with tolerances up to ``spare``."""
    options: dict[str, Candidate] = {}
    for name, params in _settings(spare):
        code = _built(build, name, params)
        if code is not None and code.tolerance >= 1 and _is_exact(code):
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about conditions, which are tested here
        try:
            return build(name, params)
        except CodeError:
            return None


def _is_exact(code: Code) -> bool:
    conditions = condition_statistics(code, code.tolerance, limit=CHECKED_PATTERNS)
    return conditions.worst < EXACT_CONDITION / code.units


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Round times of a candidate in K scenarios."""

    label: str
    round_s: Times
    """Round time in each scenario, shape (K,)."""
    mean_s: float
    cautious_s: float
    """One standard error above the mean: rare lateness may be less rare than it was observed."""

    def rank(self, round_s: float) -> float:
        """The share of scenarios quicker than a round, plus half the share of ties."""
        quicker = self.round_s < round_s * (1.0 - TUNING.rank_tie)
        not_longer = self.round_s <= round_s * (1.0 + TUNING.rank_tie)
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
) -> Forecast:
    """Simulate the scenarios with a code whose n-th share is held by the n-th learner.

    Args:
        candidate: A code of at most as many learners as the scenarios have.
        moved: Bytes of its shares.
        likely: The scenarios.
        links: Between the services.
        max_variance: Limit of ``Arrivals``.
        holders: Of each unit, as in ``Arrivals``.
    """
    code = candidate.code
    working = np.flatnonzero(code.load)
    busy_s = (code.load * likely.unit_s[:, : code.learners] + likely.delay_s[:, : code.learners])[
        :, working
    ]
    arrival_s = arrival_times(busy_s, moved, links)
    order = np.argsort(arrival_s, axis=1, kind="stable")
    needed = arrivals_of(code, max_variance, holders).needed(working[order])
    every = np.arange(len(order))
    round_s = arrival_s[every, order[every, needed - 1]]
    mean_s = float(likely.weight @ round_s)
    error_s = float(np.sqrt(likely.weight @ (round_s - mean_s) ** 2 / likely.evidence))
    return Forecast(
        label=candidate.label, round_s=round_s, mean_s=mean_s, cautious_s=mean_s + error_s
    )
