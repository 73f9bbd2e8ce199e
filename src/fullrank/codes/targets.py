"""Targets: a code recovers T U, where U stacks the updates u_i of the M units.

T has shape (targets K, units M) and integer entries. A set J of rows decodes iff the row space of
C_J contains that of T. ``each_unit`` asks for every u_i, ``sum_of_units`` for their sum (gradient
coding [Tandon17]), ``sums_of_groups`` for one sum per agent (data-parallel training).

Sums of grid values add exactly: with a target row t, every partial sum of sum_i t_i u_i is a
multiple of the grid g, and float64 represents it while sum_i |t_i| |u_i| <= 2^53 g
(``largest_sum``; 2^17 for the default grid). No target may exceed this bound for updates of the
largest size that encodes exactly.
"""

from collections.abc import Sequence

import numpy as np

from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix
from fullrank.common.updates import GRID

LIMIT = 0.5
"""Largest |u| for which encoding is exact: updates are clipped per variable to this norm."""


def each_unit(units: int) -> Matrix:
    """T = I_M: every u_i."""
    return np.eye(units)


def sum_of_units(units: int) -> Matrix:
    """T = 1^T: the sum of all u_i.

    >>> sum_of_units(3)
    array([[1., 1., 1.]])
    """
    return np.ones((1, units))


def sums_of_groups(groups: int, size: int) -> Matrix:
    """T = I (x) 1^T: the sum over each of ``groups`` groups of ``size`` consecutive units.

    >>> sums_of_groups(2, 2)
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]])
    """
    return np.asarray(np.kron(np.eye(groups), np.ones((1, size))), np.float64)


def largest_sum(grid: float) -> float:
    """Largest sum_i |t_i| |u_i| at which a sum of grid values is exact in float64.

    >>> largest_sum(GRID) == 2.0**17
    True
    """
    return 2.0**53 * grid


def checked_target(target: Matrix, *, units: int) -> Matrix:
    """T as a read-only float64 matrix.

    Raises:
        CodeError: T is not a (K, M) matrix of integers without zero rows, or its sums are not
            exact for updates up to ``LIMIT``.
    """
    checked = np.array(target, dtype=np.float64)
    if checked.ndim != 2 or checked.shape[1] != units or not len(checked):
        raise CodeError(f"a target of {units} units needs the shape (K, {units}): {checked.shape}")
    if not (np.rint(checked) == checked).all() or not checked.any(axis=1).all():
        raise CodeError("the rows of a target need integer entries that are not all zero")
    heaviest = float(np.abs(checked).sum(axis=1).max())
    if heaviest * LIMIT > largest_sum(GRID):
        raise CodeError(
            f"a target sums {heaviest:g} updates of up to {LIMIT}; sums are exact up to "
            f"{largest_sum(GRID):g}"
        )
    checked.setflags(write=False)
    return checked


def target_sizes(target: Matrix, unit_sizes: Sequence[int]) -> tuple[int, ...]:
    """Entries of each target: those of its largest unit.

    >>> target_sizes(sums_of_groups(2, 2), [3, 1, 4, 5])
    (3, 5)
    """
    return tuple(np.where(target, unit_sizes, 0).max(axis=1).tolist())


def is_each_unit(target: Matrix) -> bool:
    """Test for T = I."""
    count, units = target.shape
    return count == units and np.array_equal(target, np.eye(units))


def described(target: Matrix) -> str:
    """The target in words.

    >>> described(sum_of_units(3)), described(sums_of_groups(2, 2))
    ('the sum of all 3 units', '2 sums of the 4 units')
    """
    count, units = target.shape
    if is_each_unit(target):
        return f"each of {units} units"
    return f"the sum of all {units} units" if count == 1 else f"{count} sums of the {units} units"


def rank_of(target: Matrix) -> int:
    """Rank of T: J decodes with no fewer rows."""
    return len(target) if is_each_unit(target) else int(np.linalg.matrix_rank(target))
