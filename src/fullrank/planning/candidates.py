"""The codes that a plan may choose from."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import condition_statistics
from fullrank.codes.targets import each_unit
from fullrank.common.errors import CodeError

EXACT_CONDITION = 2.0**17
"""With kappa below this over M a decode is exact: M 2^-52 kappa |u| < 2^-36, |u| <= 1/2, with a
factor two to spare."""
CHECKED_PATTERNS = 500
"""Loss patterns at full tolerance whose conditions are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A family with its parameters, built for R rows and M units."""

    name: str
    params: dict[str, Any]
    code: Code

    @property
    def label(self) -> str:
        """As the command line takes it: ``cyclic,tolerance=2``.

        A family without parameters is its name.
        """
        return ",".join([self.name, *(f"{key}={value}" for key, value in self.params.items())])


@cache
def candidates(*, rows: int, units: int, seed: int) -> tuple[Candidate, ...]:
    """Every code for these sizes that survives a loss and decodes exactly after any it tolerates.

    Families with a ``tolerance`` appear once for each rung of ``ladder``, the others once.
    """
    found = []
    for name, params in _settings(rows - units):
        code = _built(name, params, rows=rows, units=units, seed=seed)
        if code is not None and code.tolerance >= 1 and _is_exact(code):
            found.append(Candidate(name=name, params=params, code=code))
    return tuple(found)


def ladder(most: int) -> list[int]:
    """Tolerances worth trying up to ``most``: all of the first eight, then in steps of a quarter.

    >>> ladder(7), ladder(40)
    ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 40])
    """
    rungs = [1]
    while (following := max(rungs[-1] + 1, rungs[-1] * 5 // 4)) <= most:
        rungs.append(following)
    return rungs if rungs[-1] == most or most < 1 else [*rungs, most]


def _settings(spare: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in codes:
        if name == "auto":
            continue
        family = codes.get(name)
        known = {field.name for field in fields(family)}  # type: ignore[arg-type]
        if "tolerance" in known:
            yield from ((name, {"tolerance": tolerance}) for tolerance in ladder(spare))
        else:
            yield name, {}


def _built(name: str, params: dict[str, Any], *, rows: int, units: int, seed: int) -> Code | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about conditions, which are looked at here
        try:
            return make_code(
                name, rows=rows, units=units, seed=seed, target=each_unit(units), **params
            )
        except CodeError:
            return None


def _is_exact(code: Code) -> bool:
    found = condition_statistics(code, code.tolerance, limit=CHECKED_PATTERNS)
    return found.worst < EXACT_CONDITION / code.units
