"""Candidate codes of a plan."""

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
from fullrank.common.types import Matrix

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
