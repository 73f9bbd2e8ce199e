"""Claim: ``cyclic`` reaches its tolerance at the least load that any code can have.

At (M, N) = (8, 15): with s = N - M all 6435 sets of 8 rows decode, with at most 5 units a row where
dense MDS needs 8; with s = 2 two units a row suffice. A unit must sit on s + 1 rows to survive any
s losses, so ceil(M (s + 1) / N) is the least maximal load. Prints one Markdown table; exits with 1
if a claim fails.

    python benchmarks/least_load.py
"""

import math
import sys

import numpy as np

from fullrank.codes import Code, make_code
from fullrank.codes.conditions import decodable, loss_patterns, worst_condition

ROWS, UNITS = 15, 8


def main() -> None:
    mds = make_code("mds", rows=ROWS, units=UNITS)
    cyclic = [make_code("cyclic", rows=ROWS, units=UNITS, tolerance=s) for s in (1, 2, 3, 7)]
    print("| code | s | sets that decode | max load | floor | mean load / MDS | worst kappa |")
    print("|---|---|---|---|---|---|---|")
    failures = [claim for code in [mds, *cyclic] for claim in measure(code, mds)]
    heaviest = {code.tolerance: int(code.load.max()) for code in cyclic}
    if heaviest[7] != 5 or mds.load.max() != 8:
        failures.append(f"max load {heaviest[7]} against {mds.load.max()}, not 5 against 8")
    if heaviest[2] != 2:
        failures.append(f"max load {heaviest[2]} at s = 2, not 2")
    print("\n" + ("; ".join(failures) or "all claims hold"))
    sys.exit(bool(failures))


def measure(code: Code, mds: Code) -> list[str]:
    """Print one row of the table; return the claims that fail."""
    tolerance = code.tolerance
    patterns = loss_patterns(ROWS, tolerance)
    decoding = int(np.count_nonzero(decodable(code.matrix, patterns)))
    floor = math.ceil(UNITS * (tolerance + 1) / ROWS)
    print(
        f"| {code.name} | {tolerance} | {decoding} / {len(patterns)} | {code.load.max()} | {floor} "
        f"| {code.load.sum() / mds.load.sum():.2f} | {worst_condition(code.matrix, patterns):.4g} |"
    )
    failures = []
    if decoding < len(patterns):
        failures.append(f"{code.name} s = {tolerance}: {len(patterns) - decoding} sets fail")
    if code.name == "cyclic" and code.load.max() > floor:
        failures.append(f"cyclic s = {tolerance}: load {code.load.max()} above {floor}")
    return failures


if __name__ == "__main__":
    main()
