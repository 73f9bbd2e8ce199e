"""Digests of the rows of a matrix, made where it lies."""

import numpy as np
import torch
from torch import Tensor

from fullrank.common.updates import DIGEST_BYTES, unit_digest


def row_digests(rows: Tensor, length: int) -> Tensor:
    """Return the ``unit_digest`` of the first entries of every row.

    On CUDA there is no wait for the device, and the launches can be captured in a graph once a call
    has compiled them: one, and one more for each factor of 256 in the chunks of a row.

    Args:
        rows: Float32, shape (R, >= length), of any strides.
        length: Entries that are hashed, at least one.

    Returns:
        Digests on the device of the rows, uint8, shape (R, 16).
    """
    if rows.device.type == "cuda":
        from fullrank.networks.cards.blake3_kernels import hash_rows

        with torch.cuda.device(rows.device):
            return hash_rows(rows, length)
    digests = b"".join(map(unit_digest, rows[:, :length].cpu().numpy()))
    found = np.frombuffer(bytearray(digests), np.uint8).reshape(-1, DIGEST_BYTES)
    return torch.from_numpy(found).to(rows.device)
