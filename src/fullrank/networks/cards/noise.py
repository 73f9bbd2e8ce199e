"""Noise of actions, drawn where it is used."""

import torch
from torch import Tensor


def fill_gumbel(out: Tensor, keys: Tensor, size: int) -> Tensor:
    """Fill a buffer on CUDA with standard Gumbel noise, -log(-log u), of keyed streams.

    Uniform numbers are those of ``fullrank.common.seeding.stream``, and noise of a stream does not
    depend on the others in the call. A captured launch reads the keys that lie there when it is
    replayed.

    Args:
        out: Float32, shape (streams, rows, columns), contiguous.
        keys: Keys of the streams, int32, shape (streams, 4), as ``seeding.key`` returns them.
        size: Columns that are drawn, row by row; the others become zero.

    Returns:
        The buffer.
    """
    from fullrank.networks.cards.noise_kernels import BLOCK, LANES, UNFUSED, fill

    streams, rows, columns = out.shape
    out[:, :, size:].zero_()
    grid = (-(-rows * size // (BLOCK * LANES)), streams)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        fill[grid](keys, out, rows * size, size, columns, LANES=LANES, **UNFUSED)
    return out
