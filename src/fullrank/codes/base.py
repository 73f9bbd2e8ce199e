"""Codes: an assignment matrix C of shape (rows R, units M), its target and its tolerance.

Row j of C is a linear combination: its holder computes every unit i with c_ji != 0 and returns the
coded vector y_j = sum_i c_ji u_i. A set J of received rows determines the target T U iff the row
space of C_J contains that of T; for T = I iff rank(C_J) = M [Wang21, section III]. A learner holds
one row, or several consecutive ones (``learner_codes``), which are lost together.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np

from fullrank.codes.conditions import decodable, measure_tolerance
from fullrank.codes.targets import LIMIT, checked_target, described, each_unit, is_each_unit
from fullrank.common.errors import CodeError, TooFewRows
from fullrank.common.registry import Registry
from fullrank.common.types import BoolArray, IntArray, Matrix, UnitIndex
from fullrank.common.updates import GRID

Certificate: TypeAlias = Literal["closed form", "exhaustive", "generic"]
"""Ground of a tolerance: a proof, a check of every loss pattern, or probability 1 and samples."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest s such that any s learners may be lost and the target still decodes."""

    value: int
    certificate: Certificate


@dataclass(frozen=True, kw_only=True, eq=False)
class Code:
    """One assignment matrix with its guarantees; arrays are read-only.

    Args:
        name: The registered name.
        matrix: C, shape (R, M) float64.
        known_tolerance: The tolerance where the construction proves it; otherwise it is measured
            on first use.
        target: T, shape (K, M): decoding recovers T U. Default: the identity.
        rows_per_learner: k: learner n holds the rows n k .. n k + k - 1.
    """

    name: str
    matrix: Matrix
    known_tolerance: Tolerance | None = None
    target: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    rows_per_learner: int = 1

    def __post_init__(self) -> None:
        matrix = np.ascontiguousarray(self.matrix, dtype=np.float64)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)
        target = self.target if self.target.size else each_unit(self.units)
        object.__setattr__(self, "target", checked_target(target, units=self.units))

    @property
    def rows(self) -> int:
        """R, the number of rows."""
        return int(self.matrix.shape[0])

    @property
    def units(self) -> int:
        """M, the number of units."""
        return int(self.matrix.shape[1])

    @property
    def learners(self) -> int:
        """N, the number of learners that the rows are assigned to."""
        return self.rows // self.rows_per_learner

    @property
    def blocks(self) -> Matrix:
        """The rows of each learner, shape (N, k, M)."""
        return self.matrix.reshape(self.learners, self.rows_per_learner, self.units)

    @property
    def redundancy(self) -> float:
        """R / M, rows per unit."""
        return self.rows / self.units

    @cached_property
    def held(self) -> BoolArray:
        """True where a learner computes a unit, for any of its rows, shape (N, M)."""
        return np.asarray(self.blocks.any(axis=1))

    @cached_property
    def load(self) -> IntArray:
        """Number of units that each learner computes, shape (N,)."""
        load: IntArray = self.held.sum(axis=1, dtype=np.int64)
        load.setflags(write=False)
        return load

    @cached_property
    def recovers_units(self) -> bool:
        """True if T = I, so that decoding gives every u_i."""
        return is_each_unit(self.target)

    @property
    def tolerance(self) -> int:
        """Largest s such that T U decodes after the loss of any s learners."""
        return self._tolerance.value

    @property
    def certificate(self) -> Certificate:
        """Ground of the tolerance."""
        return self._tolerance.certificate

    @cached_property
    def _tolerance(self) -> Tolerance:
        if self.known_tolerance is not None:
            return self.known_tolerance
        value, exhaustive = measure_tolerance(
            self.matrix, target=self.target, rows_per_learner=self.rows_per_learner
        )
        return Tolerance(value, "exhaustive" if exhaustive else "generic")

    def recovering(self, target: Matrix) -> Self:
        """Use the same rows to recover another target.

        A proved tolerance stays proved if losing one learner more can lose all holders of a unit
        that T asks for; otherwise the tolerance is measured.

        Raises:
            CodeError: The rows of C do not span T.
        """
        target = checked_target(target, units=self.units)
        if np.array_equal(target, self.target):
            return self
        if not decodable(self.matrix, np.arange(self.rows)[None], target=target)[0]:
            raise CodeError(
                f"{self.name} with {self.rows} rows does not recover {described(target)}; "
                "choose cyclic, mds or replication"
            )
        known = self.known_tolerance if self.recovers_units else None
        most = int(self.blocks.any(axis=1).sum(axis=0)[target.any(axis=0)].min()) - 1
        if known is not None and known.value < most:
            known = None
        return replace(self, target=target, known_tolerance=known)


class CodeFamily(Protocol):
    """A registered code: a frozen dataclass, derived from this one, with its parameters as fields.

    Its docstring lists the properties of the codes it builds: tolerance, load, and when they exist.
    """

    @abstractmethod
    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Build the code with R = ``rows`` and M = ``units``; equal arguments give equal bits.

        Raises:
            CodeError: No such code exists; the message names the inequality.
        """

    @abstractmethod
    def rows_for(self, units: int) -> int:
        """Choose R for M = ``units``: the fewest rows that give the requested tolerance.

        A family without a parameter for its tolerance gives the fewest rows that survive a loss,
        as far as its construction can.

        Raises:
            CodeError: The parameters admit no code of so many units.
        """

    def rows_to_recover(self, target: Matrix) -> int:
        """Choose R for a target other than every unit; by default as many rows as for every unit.

        Raises:
            CodeError: The parameters admit no code of so many units.
        """
        return self.rows_for(target.shape[1])

    def recovering(self, target: Matrix, *, rows: int, seed: int) -> Code:
        """Build the code of R = ``rows`` that recovers T, shape (K, M).

        Raises:
            CodeError: No such code exists, or its rows do not span T.
        """
        return self.build(rows=rows, units=target.shape[1], seed=seed).recovering(target)

    @classmethod
    def tolerating(cls, losses: int) -> dict[str, Any] | None:
        """Return the parameters that set the tolerance; None if the sizes or a draw settle it.

        Families that derive from this class inherit the default, None.

        Args:
            losses: The tolerance s >= 0 to set.
        """
        return None


codes: Registry[CodeFamily] = Registry(
    "code", "fullrank.codes", package="fullrank.codes.families", interface=CodeFamily
)
register = codes.register


def make_code(
    name: str,
    *,
    rows: int,
    units: int,
    seed: int = 0,
    target: Matrix | None = None,
    **params: Any,
) -> Code:
    """Build a registered code.

    Args:
        name: ``uncoded``, ``replication``, ``mds``, ``cyclic``, ...; see ``codes``.
        rows: R, rows of the assignment matrix, one a learner.
        units: M, agents or micro-batches.
        seed: Keys the draws of the random constructions.
        target: T, shape (K, units); by default the family's own, for most the identity.
        **params: The family's own parameters, for example ``tolerance`` of ``cyclic``.

    Raises:
        CodeError: No such code exists for these sizes, or its rows do not span ``target``.
        ConfigError: Unknown name or parameter.

    >>> make_code("replication", rows=4, units=3).matrix
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.],
           [1., 0., 0.]])
    """
    family = codes.build(name, **params)
    if rows < 1 or units < 1:
        raise CodeError(f"{name} needs rows >= 1 and units >= 1: rows = {rows}, units = {units}")
    code = family.build(rows=rows, units=units, seed=seed)
    return code if target is None else code.recovering(target)


def support(row: Matrix) -> list[UnitIndex]:
    """Units with a non-zero coefficient in a row of C, ascending."""
    return [int(unit) for unit in np.flatnonzero(row)]


def is_lone_unit(rows: Matrix) -> BoolArray:
    """Tell of each row, shape (..., M), whether its vector is the update of one unit as it is.

    Such a vector is float32, since an update is; the vectors of other rows are float64.

    >>> is_lone_unit(np.array([[0.0, 1.0], [0.5, 0.0], [1.0, 1.0], [0.0, 0.0]])).tolist()
    [True, False, False, False]
    """
    alone = np.count_nonzero(rows, axis=-1) == 1
    return np.asarray(alone & (rows.max(axis=-1) == 1.0))


def require_enough_rows(name: str, *, rows: int, units: int, tolerance: int = 0) -> None:
    """Refuse R < M + s, with which no code stays of full rank after s losses."""
    if rows < units + tolerance:
        raise TooFewRows(name, rows=rows, units=units, tolerance=tolerance)


def dyadic(matrix: Matrix) -> Matrix:
    """Round coefficients to multiples of a power of two q such that encoding is exact.

    With |u_i| <= ``LIMIT`` on the grid g, every product c u and every partial sum of a row is a
    multiple of q g below 2^52 q g, hence a float64: y = C u has no rounding error in any
    order of summation, on every machine. A row with absolute sum t gets q >= t LIMIT / (2^52 g),
    which changes a coefficient c by less than the share 2^-17 t / |c|. The proof is in
    docs/certificate.md.

    >>> float(dyadic(np.array([[1 / 3, 2 / 3]]))[0, 0] * 2**17) % 1
    0.0
    """
    heaviest = float(np.abs(matrix).sum(axis=1).max())
    spread = 1.0 + matrix.shape[1] * 2.0**-17  # rounding may add q / 2 to each entry of a row
    quantum = 2.0 ** math.ceil(math.log2(heaviest * spread * LIMIT / (2.0**52 * GRID)))
    return np.rint(matrix / quantum) * quantum + 0.0
