"""Claim: the linear hash of an update costs at most eight times its BLAKE3 digest.

For updates of P entries, on one thread: the digest of one unit (float32), its linear hash, a digest
of a coded vector (float64), the modular alternatives that were tried, and the weights, which are
drawn once per run. Every column is relative to the digest of the same run. Prints one Markdown
table; exits with 1 if the linear hash takes more than ``LIMIT`` digests.

    python benchmarks/linear_hash.py
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from blake3 import blake3

from fullrank.common.linear_hash import LinearHash, _weights
from fullrank.common.types import FloatArray, IntArray, Matrix, Vector
from fullrank.common.updates import GRID, snap, unit_digest

SIZES = (5_000, 100_000, 1_000_000)
REPEATS = 15
LIMIT = 8.0
PRIME = np.int64(2**31 - 1)
LIMB = 2.0**18
BLOCK = 1 << 15


def main() -> None:
    print(
        "| P | BLAKE3 | linear hash | BLAKE3 of a coded vector | mod 2^31 - 1 | float64 limbs "
        "| weights |\n|---|---|---|---|---|---|---|"
    )
    worst = 0.0
    for length in SIZES:
        update = snap(np.random.default_rng(0).normal(scale=1e-3, size=length).astype(np.float32))
        coded, hashing = update.astype(np.float64), LinearHash(length, key=0)
        integers = np.random.default_rng(1).integers(2**31, size=length)
        floats = np.random.default_rng(1).integers(int(LIMB), size=(length, 4)).astype(np.float64)
        digest_s = seconds(partial(unit_digest, update))
        ratios = [
            seconds(work) / digest_s
            for work in (
                partial(hashing.of, update),
                partial(digest, coded),
                partial(modular, update, integers),
                partial(limbs, update, floats),
                partial(_weights.__wrapped__, 0, length),
            )
        ]
        worst = max(worst, ratios[0])
        cells = " | ".join(f"{ratio:.1f}" for ratio in ratios)
        print(f"| {length:,} | {digest_s * 1e6:.0f} us | {cells} |", flush=True)
    print(f"\nthe linear hash takes at most {worst:.1f} digests")
    sys.exit(worst > LIMIT)


def digest(coded: Vector) -> bytes:
    """BLAKE3-128 of a coded vector."""
    return blake3(coded.view(np.uint8).data).digest(16)


def modular(update: FloatArray, weights: IntArray) -> int:
    """Hash modulo one 31-bit prime, in int64."""
    integers = np.multiply(update, 1.0 / GRID, dtype=np.float64).astype(np.int64) % PRIME
    return int((integers * weights % PRIME).sum() % PRIME)


def limbs(update: FloatArray, weights: Matrix) -> list[int]:
    """Hash by exact products with four small weights each, by BLAS over two limbs of 18 bits."""
    total = [0] * weights.shape[1]
    for start in range(0, len(update), BLOCK):
        low = np.multiply(update[start : start + BLOCK], 1.0 / (GRID * LIMB), dtype=np.float64)
        high = np.rint(low)
        low = (low - high) * LIMB
        upper, lower = np.stack([high, low]) @ weights[start : start + BLOCK]
        for index, (one, other) in enumerate(zip(upper, lower, strict=True)):
            total[index] += int(one) * int(LIMB) + int(other)
    return total


def seconds(work: Callable[[], object]) -> float:
    """Measure the least seconds of several runs."""
    work()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
