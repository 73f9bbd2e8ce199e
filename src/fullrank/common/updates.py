"""Exact updates: the grid that u_i is snapped to, and the digests that audit it.

A snapped update is a multiple of ``grid`` that float32 represents: above 2^-13 float32 is already
coarser than the default grid, below it the multiple has fewer than 24 significant bits.
"""

from collections.abc import Sequence

import google_crc32c
import numpy as np
from blake3 import blake3

from fullrank.common.cores import usable_cores
from fullrank.common.types import FloatArray, Vector

GRID = 2.0**-36
"""Default grid, below Adam's epsilon (1e-8)."""

DIGEST_BYTES = 16

THREADED_BYTES = 2**22
"""Size from which on an update is digested by threads. Two of them take 1.7 times the processor
time of one at 1 MiB, 1.2 times at 4 MiB and 1.0 times from 16 MiB on, their start included; 16 are
5 times as fast at 100 MB on 16 cores (docs/measurements.md, "One card")."""


def snap(update: FloatArray, *, grid: float = GRID, out: FloatArray | None = None) -> FloatArray:
    """Round to the grid, half to even, with +0.0 as the only zero.

    Args:
        update: u_i or several of them, any shape, float32; clipped, so |u| is far below 2^64 grid.
        grid: A power of two.
        out: The result array; by default a new one.
    """
    scaled = np.multiply(update, np.float32(1.0 / grid), out=out)  # a power of two: exact
    np.rint(scaled, out=scaled)
    scaled *= np.float32(grid)
    scaled += np.float32(0.0)
    return scaled


def add_scaled(coded: Vector, coefficient: float, update: FloatArray) -> None:
    """Add c_ji u_i to y_j in place; shorter updates are padded with zeros at the end."""
    coded[: len(update)] += np.multiply(update, coefficient, dtype=np.float64)


def padded(update: FloatArray, length: int) -> FloatArray:
    """y_j of a row that is u_i alone, with coefficient 1; zeros follow a shorter update."""
    coded = np.empty(length, np.float32)
    coded[: len(update)], coded[len(update) :] = update, 0.0
    return coded


def unit_digest(update: FloatArray, *, statistics: int = 0) -> bytes:
    """BLAKE3-128 over one unit's own P_i entries as little-endian float32.

    A large update takes half of the cores, so that a computation beside keeps the others: on two
    cores, one thread.

    Args:
        update: u_i, shape (P_i,).
        statistics: Number of last entries that hold statistics. They have a digest of their own,
            which follows that of the others.
    """
    entries = np.ascontiguousarray(update, dtype="<f4")
    parts = np.split(entries, [len(entries) - statistics]) if statistics else [entries]
    return b"".join(
        blake3(part.view(np.uint8).data, max_threads=_threads(part.nbytes)).digest(DIGEST_BYTES)
        for part in parts
    )


def _threads(size: int) -> int:
    """Return the threads that digest so many bytes; cores are counted where several may."""
    return max(1, usable_cores() // 2) if size >= THREADED_BYTES else 1


def digest_bytes(statistics: int) -> int:
    """Bytes of a unit's digest, which has two parts if the last entries hold statistics."""
    return DIGEST_BYTES * (1 + bool(statistics))


def batch_digest(batch: FloatArray) -> bytes:
    """CRC-32C over a minibatch, contiguous float32, as four bytes.

    It detects accidental differences between minibatches at a ninth of the cost of BLAKE3;
    ``unit_digest`` proves the results.
    """
    checksum: int = google_crc32c.value(batch)
    return checksum.to_bytes(4)


def update_digest(target_digests: Sequence[bytes]) -> str:
    """Hex digest of an iteration: BLAKE3-128 over the digests of its targets in index order.

    Statistics beside the targets do not change it.
    """
    updates = (digest[:DIGEST_BYTES] for digest in target_digests)
    return blake3(b"".join(updates)).hexdigest(DIGEST_BYTES)
