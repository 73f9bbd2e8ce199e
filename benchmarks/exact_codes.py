"""Claim: decoded updates equal the centralised ones bit for bit, for every code and arrival order.

For every registered code that exists at a size, random arrival orders are cut at the first J that
decodes and passes the certificate. Updates look like clipped gradients: five decades of scales, a
fifth of the entries zero. Prints one Markdown table; exits with 1 if a claim fails:

* every commit is bit for bit the centralised update (for ``fractional`` the sum);
* for ``mds`` and ``cyclic`` no J of full rank fails the certificate;
* ``vandermonde`` decodes wrongly at some J, and the certificate refuses every such J.

    python benchmarks/exact_codes.py --orders 100
"""

import argparse
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.codes import Code, Decoder, codes, make_code
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix
from fullrank.common.updates import snap

SIZES = [(3, 4), (8, 15), (10, 15), (12, 24), (32, 64)]
ENTRIES = 2_000
ADAM_EPSILON = 1e-8


@dataclass(slots=True)
class Counts:
    """Outcomes of one code at one size."""

    committed: int = 0
    different: int = 0
    """Commits that differ from the centralised update in some bit."""
    decodable: int = 0
    refused: int = 0
    """Decodable sets J that failed the certificate."""
    worst_error: float = 0.0
    """Largest error of any decodable set, before the certificate."""
    wrong_and_called_exact: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=100)
    orders = parser.parse_args().orders
    print("| code | M, N | commits equal | J refused by the certificate | worst error of any J |")
    print("|---|---|---|---|---|")
    failures = []
    for units, rows in SIZES:
        for name in codes:
            for code in made(name, rows, units):
                counts = measure(code, orders)
                label = f"{name} {code.tolerance}" if name == "cyclic" else name
                print(
                    f"| {label} | {units}, {rows} "
                    f"| {counts.committed - counts.different} / {counts.committed} "
                    f"| {counts.refused} / {counts.decodable} | {counts.worst_error:.1e} |",
                    flush=True,
                )
                failures += broken(name, units, counts, orders)
    print("\n" + ("; ".join(failures) or "all claims hold"))
    sys.exit(bool(failures))


def made(name: str, rows: int, units: int) -> list[Code]:
    """Codes of a family at this size (``cyclic`` at both ends of its tolerance), if any."""
    ends: list[dict[str, Any]] = [{}]
    if name == "cyclic":
        ends = [{"tolerance": 1}, {"tolerance": rows - units}]
    if name == "cyclic" and rows - units == 1:
        ends.pop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [make_code(name, rows=rows, units=units, seed=1, **end) for end in ends]
        except CodeError:
            return []


def measure(code: Code, orders: int) -> Counts:
    generator = np.random.default_rng([code.rows, code.units])
    counts = Counts()
    for _ in range(orders):
        updates = gradients(code.units, generator)
        wanted = code.target @ updates
        decoder = Decoder(code)
        for row in generator.permutation(code.rows):
            decoder.offer(row=int(row), vector=code.matrix[row] @ updates)
            if decoder.decodable and commits(decoder, wanted, counts):
                break
    return counts


def commits(decoder: Decoder, wanted: Matrix, counts: Counts) -> bool:
    """Decode and count; return whether the certificate allows the commit."""
    decoded = decoder.decode()
    error = float(np.abs(decoded - wanted).max())
    counts.decodable += 1
    counts.worst_error = max(counts.worst_error, error)
    counts.refused += not decoder.exact
    if decoder.exact:
        counts.committed += 1
        counts.different += decoded.tobytes() != (wanted + 0.0).tobytes()
        counts.wrong_and_called_exact += error > 0.0
    return decoder.exact


def gradients(units: int, generator: np.random.Generator) -> Matrix:
    """Draw updates on the grid, shape (M, ENTRIES)."""
    scale = 10.0 ** generator.uniform(-6, -1, (units, 1))
    updates = (generator.standard_normal((units, ENTRIES)) * scale).clip(-0.5, 0.5)
    updates[generator.random(updates.shape) < 0.2] = 0.0
    return snap(updates.astype(np.float32)).astype(np.float64)


def broken(name: str, units: int, counts: Counts, orders: int) -> list[str]:
    """Claims that do not hold."""
    claims = {"a commit differs from the centralised update": counts.different == 0}
    if name in ("mds", "cyclic"):
        claims["a set of full rank was refused"] = counts.refused == 0
        claims["an order did not commit"] = counts.committed == orders
    if name == "fractional":
        claims["an order did not commit"] = counts.committed == orders
    if name == "vandermonde":
        claims["a wrong result was called exact"] = counts.wrong_and_called_exact == 0
        if units in (8, 10):
            claims["it decoded without a visible error"] = counts.worst_error > ADAM_EPSILON
    return [f"{name} at M = {units}: {claim}" for claim, holds in claims.items() if not holds]


if __name__ == "__main__":
    main()
