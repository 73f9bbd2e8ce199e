"""Reports: a learner's digest of each unit, and where targets are sums its linear hash.

A claim is the statement that a report, or the vector of a row, makes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from fullrank.algorithms.problem import Problem
from fullrank.common.linear_hash import HASH_BYTES, LinearHash, Words, from_bytes, to_bytes
from fullrank.common.types import FloatArray, LearnerId, UnitIndex, Vector
from fullrank.common.updates import digest_bytes, unit_digest

Reports = Mapping[LearnerId, Mapping[UnitIndex, bytes]]
"""The digest that each learner reported for each unit it computed, as ``report_of`` makes it."""


class Claim(NamedTuple):
    """A statement about an iteration, apart from its value."""

    units: tuple[UnitIndex, ...]
    coefficients: tuple[float, ...] = ()
    """Coefficients of the units in a row; empty for the report of a single unit."""

    @property
    def is_report(self) -> bool:
        """True for the report of a unit."""
        return not self.coefficients

    @classmethod
    def of_row(cls, coefficients: Vector) -> "Claim":
        """The statement that a row's vector makes; coefficients of shape (M,)."""
        units = np.flatnonzero(coefficients)
        return cls(tuple(units.tolist()), tuple(coefficients[units].tolist()))


def report_of(update: FloatArray, hashing: LinearHash | None, *, statistics: int = 0) -> bytes:
    """A learner's report of a unit: the digest, and where targets are sums the linear hash.

    Args:
        update: u_i, shape (P_i,), snapped.
        hashing: The run's; None where every target is one unit.
        statistics: Number of last entries that hold statistics.
    """
    digest = unit_digest(update, statistics=statistics)
    return digest if hashing is None else digest + to_bytes(hashing.of(update))


def reporter_of(problem: Problem, *, seed: int) -> Callable[[FloatArray], bytes]:
    """The report that a learner makes of a unit: its digest, and for sums its linear hash."""
    return partial(report_of, hashing=hashing_of(problem, seed=seed), statistics=problem.statistics)


def hashing_of(problem: Problem, *, seed: int) -> LinearHash | None:
    """The linear hash of a run; None where every target is one unit."""
    return None if problem.recovers_units else LinearHash(problem.vector_size, key=seed)


def report_bytes(problem: Problem) -> int:
    """Bytes of a unit's report: its digest, and where targets are sums its linear hash."""
    return digest_bytes(problem.statistics) + (0 if problem.recovers_units else HASH_BYTES)


def agreed(reports: Reports, *, units: int) -> tuple[bytes, ...]:
    """A report of each unit; empty where there is none."""
    by_unit = [b""] * units
    for digests in reports.values():
        for unit, report in digests.items():
            by_unit[unit] = report
    return tuple(by_unit)


def linear_hashes(reports: Reports, *, units: int) -> Words:
    """The reported linear hash of each unit, shape (M, 2); 0 where none was reported."""
    missing = bytes(HASH_BYTES)
    by_unit = agreed(reports, units=units)
    return np.stack([from_bytes(report[-HASH_BYTES:] or missing) for report in by_unit])
