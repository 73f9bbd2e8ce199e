"""Write codes/families/cyclic_tables.json: coefficients of ``cyclic`` for common sizes.

For each size the best of (a) random draws and (b) harmonic codewords is improved by (c): Adam on a
soft maximum of log kappa(C_J) over the worst loss patterns, which are searched again every few
steps. The result is kept if it beats (a) and (b) after rounding to exactly encodable coefficients.

    python tools/cyclic_tables.py                   # all sizes of the file, some minutes
    python tools/cyclic_tables.py --size 15,8,7     # R,M,s; merges it into the file
"""

import argparse
import json
from pathlib import Path

import numpy as np

from fullrank.codes.base import dyadic
from fullrank.codes.conditions import ALL_PATTERNS, conditions, count_patterns, loss_patterns
from fullrank.codes.decoding.certificate import quantum
from fullrank.codes.families.cyclic import candidates, place, score, windows
from fullrank.common.types import JSON, IntArray, Matrix

TABLES = Path(__file__).parent.parent / "src/fullrank/codes/families/cyclic_tables.json"
SAMPLED = 10_000
ACTIVE = 300
SHARPNESS = 12.0
RATE = 0.02
REFRESH = 15


def main() -> None:
    """Improve the given sizes, print one Markdown row each and merge them into the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", action="append", metavar="R,M,s")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split(","))) for size in options.size or []]
    sizes = sizes or [size_of(table) for table in json.loads(TABLES.read_text())]
    print("| R, M, s | (a), (b) worst kappa | kept worst / p99 | patterns |\n|---|---|---|---|")
    for rows, units, tolerance in sizes:
        matrix, before, after, scored = best(rows, units, tolerance, options.steps)
        every = "all" if scored == count_patterns(rows, tolerance) else "of more"
        print(
            f"| {rows}, {units}, {tolerance} | {before:.4g} | {after[0]:.4g} / {after[1]:.4g} "
            f"| {scored} ({every}) |",
            flush=True,
        )
        merge(rows, units, tolerance, matrix)


def best(
    rows: int, units: int, tolerance: int, steps: int
) -> tuple[Matrix, float, tuple[float, float], int]:
    """Find the best matrix; return worst condition before, (worst, p99) after, patterns scored."""
    every = count_patterns(rows, tolerance) <= ALL_PATTERNS
    patterns = loss_patterns(rows, tolerance, limit=ALL_PATTERNS if every else SAMPLED, seed=1)
    drawn = candidates(rows, units, tolerance, seed=0, draws=40)
    few = patterns[:: max(1, len(patterns) // 1000)]
    best_drawn = sorted(drawn, key=lambda matrix: score(matrix, few))[:4]
    scores = {score(matrix, patterns): matrix for matrix in best_drawn}
    before = min(scores)
    for start in list(scores.values())[:2]:
        end = dyadic(descend(start, tolerance, steps))
        scores[score(end, patterns)] = end
    after = min(scores)
    return scores[after], before[0], after, len(patterns)


def descend(matrix: Matrix, tolerance: int, steps: int) -> Matrix:
    """Step (c): Adam on the soft maximum of log kappa over the worst patterns."""
    rows, units = matrix.shape
    holders = windows(rows, units, tolerance), np.arange(units)[:, None]
    weights = matrix[holders].copy()
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    active = np.empty((0, rows - tolerance), dtype=np.int64)
    kept, least = weights, np.inf
    for step in range(steps):
        current = place(weights, rows)
        if step % REFRESH == 0:
            active = hardest(current, tolerance, active, seed=step)
            worst = float(conditions(current, active).max())
            kept, least = (weights.copy(), worst) if worst < least else (kept, least)
        slope = gradient(current, active)[holders]
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        corrected = first / (1 - 0.9 ** (step + 1))
        scale = np.sqrt(second / (1 - 0.99 ** (step + 1))) + 1e-12
        weights = weights - RATE * (1 - step / steps) * corrected / scale
        weights = place(weights / np.abs(weights).max(), rows)[holders]
    return place(kept, rows)


def hardest(matrix: Matrix, tolerance: int, active: IntArray, *, seed: int) -> IntArray:
    """Worst patterns among all, or among the active and fresh random ones."""
    rows = len(matrix)
    if count_patterns(rows, tolerance) <= ALL_PATTERNS:
        pool = loss_patterns(rows, tolerance)
    else:
        fresh = loss_patterns(rows, tolerance, limit=1500, seed=1000 + seed)
        pool = np.unique(np.vstack([active, fresh]), axis=0)
    return pool[np.argsort(conditions(matrix, pool))[-ACTIVE:]]


def gradient(matrix: Matrix, patterns: IntArray) -> Matrix:
    """Gradient of log(sum kappa^t) / t; d log kappa = u_1 v_1' / sigma_1 - u_M v_M' / sigma_M."""
    left, values, right = np.linalg.svd(matrix[patterns], full_matrices=False)
    kappa = np.log(values[:, 0] / values[:, -1])
    share = np.exp(SHARPNESS * (kappa - kappa.max()))
    share /= share.sum()
    largest = left[:, :, 0] / values[:, :1], right[:, 0]
    smallest = left[:, :, -1] / values[:, -1:], right[:, -1]
    total = np.zeros_like(matrix)
    for sign, (column, row) in ((1.0, largest), (-1.0, smallest)):
        np.add.at(total, patterns, sign * share[:, None, None] * column[:, :, None] * row[:, None])
    return total


def size_of(table: JSON) -> tuple[int, int, int]:
    """R, M and s of a table."""
    return table["rows"], table["units"], table["tolerance"]


def merge(rows: int, units: int, tolerance: int, matrix: Matrix) -> None:
    """Write one table into the file: integers times a power of two."""
    tables = json.loads(TABLES.read_text()) if TABLES.exists() else []
    holders = windows(rows, units, tolerance), np.arange(units)[:, None]
    exponent = int(np.log2(quantum(matrix)))
    table = {
        "rows": rows,
        "units": units,
        "tolerance": tolerance,
        "exponent": exponent,
        "coefficients": np.ldexp(matrix[holders], -exponent).astype(int).tolist(),
    }
    others = [each for each in tables if size_of(each) != (rows, units, tolerance)]
    ordered = sorted([*others, table], key=size_of)
    lines = ",\n".join(json.dumps(t, separators=(",", ":")) for t in ordered)
    TABLES.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
