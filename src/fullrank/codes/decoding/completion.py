"""What is missing where rows of C do not determine everything."""

import numpy as np
from scipy.linalg import null_space, qr

from fullrank.common.types import Matrix, UnitIndex


def completing_units(rows: Matrix) -> list[UnitIndex]:
    """The fewest units that, each sent alone, complete the rows: rank [rows; e_i ...] = M.

    Of the ways there are, pivoting picks a well conditioned one.

    Args:
        rows: C_J, shape (J, M); may be empty.

    Returns:
        M - rank(C_J) units, ascending.

    >>> completing_units(np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]))
    [0, 2]
    """
    missing = null_space(np.vstack([rows, np.zeros(rows.shape[1])]))
    _, _, order = qr(missing.T, mode="economic", pivoting=True)
    return sorted(order[: missing.shape[1]].tolist())
