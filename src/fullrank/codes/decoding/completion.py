"""Completion of rows of C that do not determine the target."""

import numpy as np

from fullrank.codes.conditions import determines
from fullrank.codes.targets import is_each_unit
from fullrank.common.types import Matrix, UnitIndex


def completing_units(rows: Matrix, *, target: Matrix | None = None) -> list[UnitIndex]:
    """Few units that, each sent alone, complete the rows: [rows; e_i ...] spans the target.

    Pivoting picks a well conditioned choice. For T = I it is the least possible, M - rank(C_J)
    units; for a lower target no unit of the choice can be spared.

    Args:
        rows: C_J, shape (J, M); may be empty.
        target: T, shape (K, M); by default the identity.

    Returns:
        Units, ascending.

    >>> completing_units(np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]))
    [0, 2]
    """
    from scipy.linalg import null_space, qr  # large, and learners never need it

    missing = null_space(np.vstack([rows, np.zeros(rows.shape[1])]))
    _, _, order = qr(missing.T, mode="economic", pivoting=True)
    chosen: list[UnitIndex] = sorted(order[: missing.shape[1]].tolist())
    if target is None or is_each_unit(target):
        return chosen
    return _spared(rows, chosen, target)


def _spared(rows: Matrix, chosen: list[UnitIndex], target: Matrix) -> list[UnitIndex]:
    """The chosen units without those that the target does without."""
    units = np.eye(rows.shape[1])
    for unit in list(chosen):
        others = [other for other in chosen if other != unit]
        if determines(np.vstack([rows, units[others], np.zeros(rows.shape[1])]), target):
            chosen = others
    return chosen
