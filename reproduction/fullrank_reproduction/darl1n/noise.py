"""Noise of gradients decoded from independent samples: mean variance against |J|.

In units of the variance of one learner's own gradient, decoded by generalised least squares over
all rows received. M / |J| is a lower bound for all codes.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from fullrank.codes.analysis import decoded_variances, least_mean_variance
from fullrank.codes.conditions import conditions, random_patterns
from fullrank.codes.families.mds import harmonic
from fullrank.common.types import JSON, Matrix
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.darl1n.published import (
    AGENTS,
    CYCLIC,
    LDGM,
    LEARNERS,
    MDS,
    REPETITION,
    SPARSE,
    Scheme,
)
from fullrank_reproduction.darl1n.table_v import LEAST_SETS

SIZES = tuple(range(AGENTS, LEARNERS + 1))
"""Numbers of received rows |J|."""
QUANTILES = (0.1, 0.5, 0.9)
SCHEMES = (REPETITION, LDGM[1], CYCLIC, SPARSE[2], MDS)
HARMONIC = "harmonic"
"""The real DFT frame, which ``mds`` equals up to 16 rows."""
CODES = (*(scheme.name for scheme in SCHEMES), HARMONIC)
DENSE = (SPARSE[2].name, MDS.name, HARMONIC)


def cells(*, samples: int) -> list[Cell]:
    """One cell for each code; ``samples`` random sets J of each size."""
    return [
        *(_cell(scheme.name, partial(_matrix, scheme), samples) for scheme in SCHEMES),
        _cell(HARMONIC, partial(harmonic, LEARNERS, AGENTS), samples),
    ]


def _matrix(scheme: Scheme) -> Matrix:
    """The matrix of one draw."""
    return scheme.make_code().matrix


def _cell(name: str, make: Callable[[], Matrix], samples: int) -> Cell:
    return Cell(
        name=f"noise-{name}",
        settings={"code": name, "samples": samples},
        compute=partial(_by_size, make, samples),
        beside=True,
    )


def _by_size(make: Callable[[], Matrix], samples: int) -> JSON:
    matrix = make()
    return {str(size): _noise(matrix, size, samples) for size in SIZES}


def _noise(matrix: Matrix, size: int, samples: int) -> JSON:
    """Noise over random sets J of the given size; no quantiles where too few sets decode.

    ``least`` is the smallest ratio of a mean variance to the bound.
    """
    patterns = random_patterns(LEARNERS, LEARNERS - size, samples=samples, seed=0)
    means = decoded_variances(matrix[patterns]).mean(axis=-1)
    decoded = np.isfinite(means)
    facts = {"decodable": decoded.mean(), "least": None, "noise": None, "condition": None}
    if decoded.sum() >= LEAST_SETS:
        kappa = conditions(matrix, patterns[decoded])
        facts |= {
            "least": means.min() / least_mean_variance(AGENTS, size),
            "noise": np.quantile(means[decoded], QUANTILES).tolist(),
            "condition": float(np.median(kappa)),
        }
    return facts
