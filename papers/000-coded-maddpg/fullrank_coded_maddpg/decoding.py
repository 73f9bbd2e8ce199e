"""The cost of decoding [Wang21, Sec. III-C]: peeling, possible with LDPC, against least squares.

Peeling takes a row with one unknown unit, subtracts that unit from all others that hold it, and
goes on: one operation on vectors for each non-zero entry of C_J. Least squares factors C_J and
multiplies all received vectors by the pseudo-inverse.
"""

import statistics
from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np

from fullrank.codes import make_code
from fullrank.common.seeding import stream
from fullrank.common.types import JSON, Array, Matrix
from fullrank_papers.cells import Cell
from fullrank_papers.claims import ClaimResult, Strength, judge
from fullrank_papers.paper import table

SIZES = ((15, 8), (15, 10), (30, 17), (60, 39))
"""(N, M): those of the paper, and two larger ones that there are."""
LENGTH = 100_000
"""Entries of a vector; those of navigation with M = 8 and the paper's networks have 50,000."""
DECODING = "decoding-cost"


def decoding_cell(repeats: int) -> Cell:
    """Seconds of both decoders and of the factorisation alone, for every size."""
    return Cell(
        name=DECODING,
        settings={"sizes": [list(size) for size in SIZES], "length": LENGTH, "repeats": repeats},
        compute=partial(_decoding_costs, repeats),
    )


def _decoding_costs(repeats: int) -> JSON:
    results = []
    for rows, units in SIZES:
        code = make_code("ldpc", rows=rows, units=units, seed=0).matrix
        generator = stream(0, "decoding_cost", rows, units)
        updates = generator.standard_normal((units, LENGTH))
        received = _peelable(code, generator)
        vectors = code[received] @ updates
        coefficients = code[received]
        spent: dict[str, list[float]] = {"peeling": [], "least squares": [], "factorisation": []}
        ways: dict[str, Callable[[], object]] = {
            "peeling": partial(peel, coefficients, vectors),
            "least squares": partial(solve, coefficients, vectors),
            "factorisation": partial(np.linalg.pinv, coefficients),
        }
        for _ in range(repeats):
            for way, compute in ways.items():
                began = process_time()
                compute()
                spent[way].append(process_time() - began)
        results.append({way: statistics.median(seconds) for way, seconds in spent.items()})
    return {"spent": results}


def _peelable(code: Matrix, generator: np.random.Generator) -> list[int]:
    """Rows received in random order until they can be peeled."""
    order = generator.permutation(len(code)).tolist()
    for count in range(code.shape[1], len(code) + 1):
        if peel(code[order[:count]], np.zeros((count, 1))) is not None:
            return list(order[:count])
    raise AssertionError("all rows of an LDPC code can be peeled")


def solve(coefficients: Matrix, vectors: Array) -> Array:
    """The units by least squares, shape (M, P)."""
    return np.linalg.pinv(coefficients) @ vectors


def peel(coefficients: Matrix, vectors: Array) -> Array | None:
    """The units one by one, shape (M, P); None if no row with one unknown is left.

    Args:
        coefficients: C_J, shape (|J|, M).
        vectors: Received vectors, shape (|J|, P).
    """
    left, rest = coefficients.copy(), vectors.copy()
    units = np.empty((coefficients.shape[1], vectors.shape[1]))
    for _ in range(coefficients.shape[1]):
        single = np.flatnonzero(np.count_nonzero(left, axis=1) == 1)
        if not single.size:
            return None
        row = int(single[0])
        unit = int(np.flatnonzero(left[row])[0])
        units[unit] = rest[row] / left[row, unit]
        for holder in np.flatnonzero(left[:, unit]).tolist():
            if np.count_nonzero(left[holder]) > 1:
                rest[holder] -= left[holder, unit] * units[unit]
        left[:, unit] = 0.0
    return units


def judge_decoding(measured: JSON) -> ClaimResult:
    """Judge if LDPC's decoding is cheaper, and by its order: O(M) instead of O(M^3)."""
    ratios = [spent["least squares"] / spent["peeling"] for spent in measured["spent"]]
    shares = [spent["factorisation"] / spent["least squares"] for spent in measured["spent"]]
    text = ", ".join(f"{ratio:.1f} times" for ratio in ratios)
    grounds = f"least squares takes {text} as long; its factorisation {max(shares):.1%} at most"
    return judge(
        "LDPC is decoded quickly by an iterative algorithm, in O(M) where others take O(M^3).",
        [] if min(ratios) > 1.0 else [grounds],
        grounds=grounds,
        strength=Strength("measured, medians on one processor"),
    )


def decoding_table(measured: JSON) -> str:
    """Milliseconds of both decoders, in Markdown."""
    heads = ["N", "M", "peeling, ms", "least squares, ms", "its factorisation, ms"]
    return table(
        heads,
        (
            [*size, *(f"{1e3 * seconds:.2f}" for seconds in spent.values())]
            for size, spent in zip(SIZES, measured["spent"], strict=True)
        ),
    )
